"""The steps of tools/gpu_proof.py, one module per claim; what they share stands in the modules without a `run`."""
