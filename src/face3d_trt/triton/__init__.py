"""Plans as a model repository of NVIDIA's Triton Inference Server. See docs/triton.md."""
