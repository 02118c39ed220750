"""What a user gains: backends side by side, measured in one run."""
