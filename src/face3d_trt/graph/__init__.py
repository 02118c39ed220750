"""From the PyTorch module to ONNX: export, its check, and the passes that write fp16 or int8 into the graph's types."""
