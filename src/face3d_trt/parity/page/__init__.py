"""A comparison as one HTML page for people who decide whether an engine is good enough: `compare --report`."""
