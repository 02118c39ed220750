"""A parsed TensorRT network, read through attributes that all versions and flavours share."""

from __future__ import annotations

from typing import Any

from face3d_trt.engine.layers import is_convolution, read_layers, weights_precision
from face3d_trt.graph.counts import Operation, precision_of
from face3d_trt.records import TensorRecord

_FLOATS = {"FLOAT": "fp32", "HALF": "fp16"}
_NAMES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}
_NO_ARITHMETIC = {"CONSTANT", "CAST", "IDENTITY", "QUANTIZE", "DEQUANTIZE"}
_WEIGHTED = {"CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY"}


def network_operations(network: Any) -> list[Operation]:
    """The layers of a strongly typed INetworkDefinition that compute on floating-point numbers."""
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    dequantized = {layer.get_output(0).name for layer in layers if layer.type.name == "DEQUANTIZE"}
    listed = []
    for layer in layers:
        kind = layer.type.name
        output = _FLOATS.get(layer.get_output(0).dtype.name) if layer.num_outputs else None
        if output is None or kind in _NO_ARITHMETIC:
            continue
        inputs = [layer.get_input(index) for index in range(layer.num_inputs)]
        flags = [tensor is not None and tensor.name in dequantized for tensor in inputs]
        precision = precision_of(output, flags, weighted=kind in _WEIGHTED)
        listed.append(Operation(layer.name, precision, kind == "CONVOLUTION"))
    return listed


def plan_operations(inspection: str) -> list[Operation]:
    """The layers with weights that run under an engine's first profile, from the inspector's JSON.

    Where TensorRT chooses the types itself, the weights' type is the one that is stated for dynamic shapes too.

    Raises:
        ValueError: It is not the inspector's JSON.
    """
    found = [(layer, weights_precision(layer)) for layer in read_layers(inspection)]
    return [
        Operation(layer["Name"], precision, is_convolution(layer))
        for layer, precision in found
        if precision in ("int8", "fp16", "fp32")
    ]


def tensor_record(tensor: Any) -> TensorRecord:
    """Name, dtype and shape of an ITensor of the network."""
    return TensorRecord(name=tensor.name, dtype=dtype_name(tensor.dtype), shape=tuple(tensor.shape))


def dtype_name(dtype: Any) -> str:
    """NumPy's name of a value of TensorRT's DataType."""
    name = str(dtype.name)
    return _NAMES.get(name, name.lower())
