"""What the GPUs and the pipeline are doing: readings of NVML, metrics, limits. Needs neither torch nor onnx."""
