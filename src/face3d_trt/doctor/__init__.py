"""What this machine can do, and what is missing. Nothing heavy is imported: packages are looked up, not loaded."""
