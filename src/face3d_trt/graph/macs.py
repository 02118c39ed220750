"""Multiply-adds and activations: which part of a network's work an operation is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from face3d_trt.graph.counts import operations

if TYPE_CHECKING:
    from onnx import ModelProto


def multiply_adds(network: ModelProto, height: int = 224, width: int = 224) -> dict[str, int]:
    """Multiply-adds of each convolution and matrix product with stored weights, by node name.

    Args:
        network: float32.
        height: Of the picture, px.
        width: Of the picture, px.
    """
    sizes = {name: math.prod(shape[2:]) for name, shape in _shapes(network, height, width).items()}
    weights = {tensor.name: math.prod(tensor.dims) for tensor in network.graph.initializer}
    counted = {}
    for node in network.graph.node:
        if node.op_type == "Conv" and node.input[1] in weights:
            counted[node.name] = weights[node.input[1]] * max(sizes.get(node.output[0], 1), 1)
        elif node.op_type in ("Gemm", "MatMul") and node.input[1] in weights:
            counted[node.name] = weights[node.input[1]]
    return counted


def activation_sizes(network: ModelProto, height: int = 224, width: int = 224) -> dict[str, int]:
    """Values of each activation of one picture, by name; of the input too.

    Args:
        network: float32.
        height: Of the picture, px.
        width: Of the picture, px.
    """
    return {name: math.prod(shape) for name, shape in _shapes(network, height, width).items()}


def _shapes(network: ModelProto, height: int, width: int) -> dict[str, list[int]]:
    """For one picture; 0 where a size is not known."""
    from onnx import shape_inference

    fixed = type(network)()
    fixed.CopyFrom(network)
    dimensions = fixed.graph.input[0].type.tensor_type.shape.dim
    for dimension, size in zip(dimensions, (1, 3, height, width), strict=False):
        dimension.dim_value = size
    graph = shape_inference.infer_shapes(fixed).graph
    return {
        value.name: [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        for value in (*graph.value_info, *graph.output, *graph.input)
    }


def int8_share(network: ModelProto, typed: ModelProto) -> float:
    """Share of the multiply-adds of `network` that its typed version does in int8; 0 when there is none at all."""
    costs = multiply_adds(network)
    in_int8 = {operation.name for operation in operations(typed) if operation.precision == "int8"}
    return sum(cost for name, cost in costs.items() if name in in_int8) / max(sum(costs.values()), 1)
