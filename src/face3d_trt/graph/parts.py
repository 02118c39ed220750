"""An exported graph in its three parts, and back in one piece.

`input` → [front: uint8 NHWC to float32 NCHW] → `image` → [network] → `coeffs` → [decode] → `vertex`, `texture`

The precision passes see the network alone, so that front and decode are float32 by construction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from face3d_trt.errors import GraphError
from face3d_trt.graph.opset import at_opset, opset_of
from face3d_trt.names import COEFFS, IMAGE, INPUT, TEXTURE, VERTEX

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

_BOUNDARIES = (INPUT, IMAGE, COEFFS)
_OUTPUTS = ([COEFFS], [COEFFS, VERTEX, TEXTURE])


@dataclass(frozen=True)
class Parts:
    """A graph cut at `image` and `coeffs`.

    Args:
        frame: The exported model without nodes and weights: inputs, outputs, metadata.
        front: `input` → `image`; None when the graph takes float32.
        network: `image` (or `input`) → `coeffs`.
        decode: `coeffs` → `vertex`, `texture`; None when the graph ends at `coeffs`.
    """

    frame: ModelProto
    front: ModelProto | None
    network: ModelProto
    decode: ModelProto | None

    @property
    def image(self) -> str:
        """The tensor at which the network begins."""
        return IMAGE if self.front is not None else INPUT

    def with_network(self, network: ModelProto) -> Parts:
        """Put `network` in the place of the float32 one, and bring the other parts to its opset."""
        opset = opset_of(network)
        return replace(
            self,
            network=network,
            front=self.front and at_opset(self.front, opset),
            decode=self.decode and at_opset(self.decode, opset),
        )


def split(model: ModelProto) -> Parts:
    """Cut `model` at `image` and `coeffs`.

    Raises:
        GraphError: It has other inputs or outputs, or is not a float32 graph any more.
    """
    _check_ours(model)
    front = _front_of(model)
    frame = _shell(model)
    frame.graph.name = model.graph.name
    frame.graph.input.extend(model.graph.input)
    frame.graph.output.extend(model.graph.output)
    decode = None
    if len(model.graph.output) > 1:
        decode = _extract(model, "decode", (VERTEX, TEXTURE))
        if any(node.op_type == "Conv" for node in decode.graph.node):
            raise _foreign(
                "`vertex` and `texture` are computed from more than `coeffs`", "a graph whose decode reads `coeffs`"
            )
    network = _extract(model, "network", (COEFFS,))
    if front is not None:
        if INPUT in {info.name for info in network.graph.input}:
            raise _foreign(f"the network reads {INPUT!r} past {IMAGE!r}", f"a network that reads {IMAGE!r} alone")
        _declare_image(network, model.graph.input[0])
    return Parts(frame, front, network, decode)


def network_of(typed: ModelProto, parts: Parts) -> ModelProto:
    """The network part of a joined graph of any precision, which is of the same export as `parts`."""
    network = _extract(typed, "network", (COEFFS,))
    del network.graph.input[:]
    network.graph.input.extend(parts.network.graph.input)
    return network


def join(parts: Parts) -> ModelProto:
    """Put the parts together again under the names, dynamic dimensions and metadata of the export; checked by onnx.

    Raises:
        GraphError: The result is not a valid ONNX model.
    """
    from onnx import checker

    joined = type(parts.frame)()
    joined.CopyFrom(parts.frame)
    joined.ir_version = parts.network.ir_version
    del joined.opset_import[:]
    joined.opset_import.extend(parts.network.opset_import)
    taken = _tensors(parts.network) | {node.name for node in parts.network.graph.node}
    for name, part in (("front", parts.front), ("network", parts.network), ("decode", parts.decode)):
        if part is None:
            continue
        if opset_of(part) != opset_of(parts.network):
            raise ValueError(f"{name} is at opset {opset_of(part)}, network at {opset_of(parts.network)}")
        graph = part.graph if part is parts.network else _renamed(part, name, taken).graph
        joined.graph.node.extend(graph.node)
        joined.graph.initializer.extend(graph.initializer)
    try:
        checker.check_model(joined, full_check=True)
    except Exception as error:  # ValidationError and InferenceError have no common base
        raise GraphError(f"the joined graph is not valid ONNX: {error}", run="face3d-trt export") from error
    return joined


def _check_ours(model: ModelProto) -> None:
    from onnx import TensorProto

    inputs = [info.name for info in model.graph.input]
    outputs = [info.name for info in model.graph.output]
    if inputs != [INPUT] or outputs not in _OUTPUTS:
        raise _foreign(
            f"it has inputs {inputs} and outputs {outputs}",
            f"input {INPUT!r}; outputs {COEFFS!r}, or {COEFFS!r}, {VERTEX!r} and {TEXTURE!r}",
        )
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    if quantized or any(tensor.data_type == TensorProto.FLOAT16 for tensor in model.graph.initializer):
        raise _foreign(f"it is an {'int8' if quantized else 'fp16'} graph already", "the float32 graph of the export")


def _foreign(found: str, expected: str) -> GraphError:
    return GraphError(
        f"this is not a graph of `face3d-trt export`: {found}", allowed=expected, run="face3d-trt export -o FILE.onnx"
    )


def _front_of(model: ModelProto) -> ModelProto | None:
    from onnx import TensorProto

    if model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT:
        return None
    if not any(IMAGE in node.output for node in model.graph.node):
        raise _foreign(
            f"its input is not float32, and it has no tensor {IMAGE!r}", "a graph with a front: --input uint8"
        )
    return _extract(model, "front", (IMAGE,))


def _extract(model: ModelProto, name: str, outputs: tuple[str, ...]) -> ModelProto:
    """The nodes and weights between the boundaries and `outputs`, as a model of its own."""
    graph = model.graph
    producer = {output: index for index, node in enumerate(graph.node) for output in node.output}
    nodes: set[int] = set()
    reached: set[str] = set()
    pending = list(outputs)
    while pending:
        tensor = pending.pop()
        if tensor in reached or (tensor in _BOUNDARIES and tensor not in outputs):
            reached.add(tensor)
            continue
        reached.add(tensor)
        if tensor in producer:
            nodes.add(producer[tensor])
            pending.extend(graph.node[producer[tensor]].input)

    part = _shell(model)
    part.graph.name = name
    part.graph.node.extend(graph.node[index] for index in sorted(nodes))
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in reached)
    known = _value_infos(model)
    part.graph.input.extend(_info(known, tensor) for tensor in _BOUNDARIES if tensor in reached - set(outputs))
    part.graph.output.extend(_info(known, tensor) for tensor in outputs)
    return part


def _value_infos(model: ModelProto) -> dict[str, ValueInfoProto]:
    graph = model.graph
    return {info.name: info for info in (*graph.value_info, *graph.input, *graph.output)}


def _info(known: dict[str, ValueInfoProto], tensor: str) -> ValueInfoProto:
    from onnx import TensorProto, helper

    if tensor in known:
        return known[tensor]
    return helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)


def _declare_image(network: ModelProto, source: ValueInfoProto) -> None:
    """Give `image` the dynamic dimensions of the uint8 input, for which the export may have left no trace."""
    from onnx import TensorProto, helper

    batch, height, width, _ = (dim.dim_param or dim.dim_value or None for dim in source.type.tensor_type.shape.dim)
    del network.graph.input[:]
    network.graph.input.append(helper.make_tensor_value_info(IMAGE, TensorProto.FLOAT, [batch, 3, height, width]))


def _shell(model: ModelProto) -> ModelProto:
    """A model with everything of `model` but its graph."""
    shell = type(model)()
    for field, value in model.ListFields():
        if field.name == "graph":
            continue
        if hasattr(value, "MergeFrom"):
            getattr(shell, field.name).MergeFrom(value)
        else:
            setattr(shell, field.name, value)
    return shell


def _tensors(model: ModelProto) -> set[str]:
    made = {output for node in model.graph.node for output in node.output}
    return made | {tensor.name for tensor in model.graph.initializer}


def _renamed(part: ModelProto, prefix: str, taken: set[str]) -> ModelProto:
    """Rename what `part` has inside and the network has too (shared constants, nodes that a pass added)."""
    boundaries = {info.name for info in (*part.graph.input, *part.graph.output)}
    inside = _tensors(part) - boundaries
    new = {name: f"{prefix}/{name}" for name in inside & taken}
    copy = type(part)()
    copy.CopyFrom(part)
    for node in copy.graph.node:
        _replace(node.input, new)
        _replace(node.output, new)
        if node.name in taken:
            node.name = f"{prefix}/{node.name}"
    for tensor in copy.graph.initializer:
        tensor.name = new.get(tensor.name, tensor.name)
    return copy


def _replace(names: Iterable[str], new: dict[str, str]) -> None:
    for index, name in enumerate(names):
        names[index] = new.get(name, name)  # type: ignore[index]  # a protobuf repeated field
