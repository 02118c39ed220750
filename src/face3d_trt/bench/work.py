"""Work by count: operations and elements moved for one picture, from an ONNX graph or from the network's definition.

Both ways give nodes the names that `export` gives them, so that an engine's layers find theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.records import NodeWork, Work
from face3d_trt.names import CROP
from face3d_trt.optional import require

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto, NodeProto

# Between a convolution and what it hands on: fused into it, or no arithmetic at all.
_FUSED = {"Relu", "Clip", "MaxPool", "BatchNormalization", "Cast", "Identity", "QuantizeLinear", "DequantizeLinear"}
_STORED = {"Cast", "Identity", "Transpose", "QuantizeLinear", "DequantizeLinear"}  # between a weight and its user
_PRODUCTS = ("Gemm", "MatMul")
_FEATURES = 4  # axes of a feature map: a residual add is one of these


def total(nodes: Iterable[NodeWork]) -> Work:
    """The sum."""
    every = tuple(nodes)
    return Work(
        flops=sum(node.flops for node in every),
        weight_elements=sum(node.weight_elements for node in every),
        activation_elements=sum(node.activation_elements for node in every),
        nodes=every,
    )


def count_file(path: Path, height: int = CROP, width: int = CROP) -> Work:
    """Count the work of an ONNX file: float32, typed fp16 or with Q/DQ pairs.

    Args:
        path: The file.
        height: Of the picture, pixels.
        width: Of the picture, pixels.

    Raises:
        GraphError: It is missing, or no ONNX file.
        MissingError: onnx is not installed.
    """
    from face3d_trt.graph.info import load_graph

    return count_graph(load_graph(path)[0], height, width)


def count_graph(model: ModelProto, height: int = CROP, width: int = CROP) -> Work:
    """Count the work of a graph for one picture.

    Args:
        model: Its first input is (batch, 3, height, width), or (batch, height, width, 3) in uint8.
        height: Of the picture, pixels.
        width: Of the picture, pixels.
    """
    shapes = _shapes(model, height, width)
    stored = _stored(model)
    users: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    nodes = []
    for node in model.graph.node:
        weights = [math.prod(stored[name]) for name in node.input[:2] if name in stored]
        if node.op_type == "Conv" and node.input[1] in stored:
            shape = shapes[node.output[0]]
            macs = weights[-1] * math.prod(shape[2:])
            moved = math.prod(shapes[node.input[0]]) + math.prod(shapes[_handed_on(node, users, shapes)])
            nodes.append(
                NodeWork(name=_name(node), flops=2 * macs, weight_elements=weights[-1], activation_elements=moved)
            )
        elif node.op_type in _PRODUCTS and len(weights) == 1:
            nodes.append(_product(node, weights[0], shapes, stored))
        elif node.op_type == "Add" and not weights and _residual(node, shapes):
            moved = math.prod(shapes[node.output[0]])
            nodes.append(NodeWork(name=_name(node), flops=0, weight_elements=0, activation_elements=moved))
    return total(nodes)


def count_network(channels: int, height: int = CROP, width: int = CROP) -> Work:
    """Count the work of the coefficient network by its definition, without weights and without ONNX.

    Args:
        channels: Of its first convolution: 64 as published (`ModelInfo.width`).
        height: Of the picture, pixels.
        width: Of the picture, pixels.

    Raises:
        MissingError: torch is not installed.
    """
    torch = require("torch", "export", "counting the network's operations")
    from face3d_trt.model.network import Bottleneck, ReconNet

    with torch.device("meta"):
        network = ReconNet(channels).eval()
    nodes: dict[str, NodeWork] = {}

    def convolution(name: str, module: Any, inputs: Any, output: Any) -> None:
        weights = module.weight.numel()
        nodes[name] = NodeWork(
            name=name,
            flops=2 * weights * math.prod(output.shape[2:]),
            weight_elements=weights,
            activation_elements=inputs[0].numel() + output.numel(),
        )

    def residual(name: str, _module: Any, _inputs: Any, output: Any) -> None:
        nodes[name] = NodeWork(name=name, flops=0, weight_elements=0, activation_elements=output.numel())

    def pooling(_module: Any, inputs: Any, output: Any) -> None:
        first = nodes["backbone.conv1/Conv"]
        moved = first.activation_elements - inputs[0].numel() + output.numel()
        nodes[first.name] = first.model_copy(update={"activation_elements": moved})

    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(lambda *found, name=name: convolution(f"{name}/Conv", *found))
        elif isinstance(module, Bottleneck):
            module.register_forward_hook(lambda *found, name=name: residual(f"{name}/Add", *found))
    network.backbone.maxpool.register_forward_hook(pooling)
    with torch.inference_mode():
        network(torch.empty(1, 3, height, width, device="meta"))
    return total(nodes.values())


def _product(
    node: NodeProto, weights: int, shapes: Mapping[str, tuple[int, ...]], stored: Mapping[str, tuple[int, ...]]
) -> NodeWork:
    """A matrix product with stored weights, on either side."""
    given = next(name for name in node.input[:2] if name not in stored)
    out = math.prod(shapes[node.output[0]])
    kept = next(stored[name] for name in node.input[:2] if name in stored)
    left = node.input[0] in stored
    transposed = any(attribute.name == ("transA" if left else "transB") and attribute.i for attribute in node.attribute)
    inner = kept[-1] if left != transposed else kept[-2]
    return NodeWork(
        name=_name(node),
        flops=2 * out * inner,
        weight_elements=weights,
        activation_elements=math.prod(shapes[given]) + out,
    )


def _handed_on(node: NodeProto, users: Mapping[str, list[NodeProto]], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The tensor that a convolution writes once what follows it alone is fused."""
    written = str(node.output[0])
    while len(users.get(written, [])) == 1 and users[written][0].op_type in _FUSED:
        following = str(users[written][0].output[0])
        if following not in shapes:
            break
        written = following
    return written


def _residual(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """An add of two feature maps: one is what the convolution before it wrote, the other is read for it."""
    found = [shapes.get(name, ()) for name in node.input]
    return len(found[0]) == _FEATURES and found[0] == found[1]


def _shapes(model: ModelProto, height: int, width: int) -> dict[str, tuple[int, ...]]:
    """Of every tensor that shape inference knows, for one picture."""
    from onnx import TensorProto, shape_inference

    fixed = type(model)()
    fixed.CopyFrom(model)
    image = fixed.graph.input[0].type.tensor_type
    sizes = (1, height, width, 3) if image.elem_type == TensorProto.UINT8 else (1, 3, height, width)
    for dimension, size in zip(image.shape.dim, sizes, strict=True):
        dimension.dim_value = size
    for output in fixed.graph.output:
        output.type.tensor_type.ClearField("shape")
    del fixed.graph.value_info[:]  # with names in the place of sizes
    graph = shape_inference.infer_shapes(fixed, data_prop=True).graph
    return {
        value.name: tuple(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }


def _stored(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that are weights, or made of nothing but one."""
    from onnx import numpy_helper

    stored = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            value = next((each for each in node.attribute if each.name == "value"), None)
            stored[node.output[0]] = tuple(numpy_helper.to_array(value.t).shape) if value is not None else ()
        elif node.op_type in _STORED and node.input[0] in stored:
            shape = stored[node.input[0]]
            if node.op_type == "Transpose":
                order = next((tuple(each.ints) for each in node.attribute if each.name == "perm"), ())
                shape = tuple(shape[axis] for axis in order or range(len(shape) - 1, -1, -1))
            stored[node.output[0]] = shape
    return stored


def _name(node: NodeProto) -> str:
    return str(node.name or node.output[0])
