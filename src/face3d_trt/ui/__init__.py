"""A page to try an engine: a photo in; the mesh, its texture, the coefficients and the time of each stage out."""
