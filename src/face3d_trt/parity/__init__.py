"""Proof that an engine, and the graphs it came from, agree with the float32 model."""
