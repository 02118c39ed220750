"""From a typed ONNX graph to a TensorRT plan and its manifest, whichever TensorRT this machine has."""
