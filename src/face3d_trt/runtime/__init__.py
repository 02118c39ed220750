"""Engines that services import: TensorRT on a GPU, ONNX Runtime without one, behind one interface."""
