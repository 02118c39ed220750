"""From photos to what the network takes: reading, detecting, aligning, collecting."""
