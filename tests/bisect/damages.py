"""Damage to a typed graph, each a function that changes it in place."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def _convolution(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.name == name)


def _source(model: onnx.ModelProto, tensor: str) -> list[onnx.NodeProto]:
    """The Q/DQ pair and casts before a tensor, the last first."""
    makers = {name: node for node in model.graph.node for name in node.output}
    found = []
    while tensor in makers and makers[tensor].op_type in ("QuantizeLinear", "DequantizeLinear", "Cast"):
        found.append(makers[tensor])
        tensor = makers[tensor].input[0]
    return found


def _change(model: onnx.ModelProto, tensor: str, change) -> None:  # type: ignore[no-untyped-def]
    stored = next(each for each in model.graph.initializer if each.name == tensor)
    value = numpy_helper.to_array(stored)
    stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(value).astype(value.dtype)), tensor))


def _weights(model: onnx.ModelProto, name: str) -> str:
    node = _convolution(model, name)
    before = _source(model, node.input[1])
    return str(before[-1].input[0] if before else node.input[1])


def louder(model: onnx.ModelProto, name: str) -> None:
    """All weights times 1.5, their scales too, as if another layer's had been stored."""
    node = _convolution(model, name)
    _change(model, _weights(model, name), lambda weight: weight * 1.5)
    for scale in {each.input[1] for each in _source(model, node.input[1]) if each.op_type != "Cast"}:
        _change(model, scale, lambda value: value * 1.5)


def swapped(model: onnx.ModelProto, name: str) -> None:
    """The first two output channels change places, in weights and scales; the biases stay."""

    def swap(value: np.ndarray) -> np.ndarray:
        order = np.arange(len(value))
        order[:2] = 1, 0
        return value[order]

    node = _convolution(model, name)
    _change(model, _weights(model, name), swap)
    for scale in {each.input[1] for each in _source(model, node.input[1]) if each.op_type != "Cast"}:
        _change(model, scale, swap)


def wrong_scale(model: onnx.ModelProto, name: str, factor: float, *, dq_alone: bool = False) -> None:
    """The scale of the activation that one convolution reads, in its own Q/DQ pair."""
    node = _convolution(model, name)
    pair = _source(model, node.input[0])
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    copies: dict[str, onnx.NodeProto] = {}
    for at, each in enumerate(pair[:1] if dq_alone else pair[:2]):  # a pair of its own: others may read the same one
        value = numpy_helper.to_array(stored[each.input[1]])
        scale = f"{name}/wrong/{at}"
        model.graph.initializer.append(numpy_helper.from_array((value * factor).astype(value.dtype), scale))
        copy = onnx.NodeProto()
        copy.CopyFrom(each)
        copy.name, copy.input[1], copy.output[0] = f"{scale}/node", scale, f"{scale}/made"
        copies[each.output[0]] = copy
    for copy in copies.values():
        copy.input[0] = copies[copy.input[0]].output[0] if copy.input[0] in copies else copy.input[0]
    node.input[0] = copies[node.input[0]].output[0]
    at = next(index for index, each in enumerate(model.graph.node) if each.name == name)
    for copy in copies.values():
        model.graph.node.insert(at, copy)


def bgr_weights(model: onnx.ModelProto, name: str) -> None:
    """The first convolution's weights for BGR pictures."""
    _change(model, _weights(model, name), lambda weight: weight[:, ::-1])


def bgr_input(model: onnx.ModelProto) -> None:
    """A front that turns RGB into BGR before the network."""
    order = numpy_helper.from_array(np.array([2, 1, 0], np.int64), "turned/order")
    model.graph.initializer.append(order)
    for node in model.graph.node:
        node.input[:] = ["turned" if name == "input" else name for name in node.input]
    model.graph.node.insert(0, helper.make_node("Gather", ["input", "turned/order"], ["turned"], name="turn", axis=1))
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
