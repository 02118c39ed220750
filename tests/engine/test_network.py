"""Reading an engine's inspection."""

from __future__ import annotations

import json

from face3d_trt.engine.network import plan_operations
from face3d_trt.graph.counts import tally


def test_precision_is_read_off_the_weights_where_formats_are_unknown() -> None:
    """As TensorRT 8.6 writes it for dynamic shapes: formats "N/A", weight types known, control characters inside."""
    layers = [
        {
            "Name": "backbone.conv1/Conv + backbone.relu/Relu",
            "LayerType": "CaskConvolution",
            "Outputs": [{"Name": "a", "Format/Datatype": "N/A due to dynamic shapes"}],
            "ParameterType": "Convolution",
            "Weights": {"Type": "Int8", "Count": 9408},
        },
        {
            "Name": "final_layers.0/Conv",
            "LayerType": "CaskConvolution",
            "ParameterType": "Convolution",
            "Weights": {"Type": "Half", "Count": 163840},
        },
        {
            "Name": "decode/MatMul",
            "LayerType": "gemm",
            "ParameterType": "MatMul",
            "Weights": {"Type": "Float", "Count": 9},
        },
        {"Name": "Reformatting CopyNode", "LayerType": "Reformat"},
        "a layer of which only the name is known",
    ]
    text = json.dumps({"Layers": layers, "Bindings": []}).replace("gemm", "ge\x01mm")
    found = tally(plan_operations(text))
    assert found.operations == {"int8": 1, "fp16": 1, "fp32": 1}
    assert found.convolutions == {"int8": 1, "fp16": 1}
