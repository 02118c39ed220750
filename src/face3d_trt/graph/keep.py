"""Take single nodes of a typed graph back to a higher precision, and leave the rest as it is.

`bisect` measures such graphs and `build --keep` builds them, by this same step: what was measured is what is built.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from face3d_trt.errors import UsageError
from face3d_trt.graph.counts import operations
from face3d_trt.records import KeepList, KeptNode

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_PAIR = ("QuantizeLinear", "DequantizeLinear")
_SAME = 0.01  # scales of a pair that differ by less are the same, rounded to two types
_NAMED = 3  # how many names a message offers
_BISECT = "face3d-trt bisect --plan PLAN -o keep.json"


def keep_higher(typed: ModelProto, exact: ModelProto, names: Collection[str]) -> ModelProto:
    """A copy of `typed` in which the nodes `names` compute in the next higher precision.

    In a graph with Q/DQ pairs a node reads what stands before them, and computes in the type of the rest, fp16 or
    float32. In any other an fp16 node gets float32 inputs, with its weights as they are in `exact`.

    Args:
        typed: After a precision pass.
        exact: The float32 graph that it was made from, with the same node names.
        names: Nodes; those that compute in higher precision already stay as they are.
    """
    from onnx import TensorProto

    copy = type(typed)()
    copy.CopyFrom(typed)
    if not names:
        return copy
    kinds = element_types(typed)
    producers = {name: node for node in copy.graph.node for name in node.output}
    stored = {tensor.name: tensor for tensor in copy.graph.initializer}
    weights = {tensor.name for tensor in exact.graph.initializer}
    sources = {node.name: node for node in exact.graph.node}
    quantized = any(node.op_type == _PAIR[0] for node in typed.graph.node)
    nodes: list[NodeProto] = []
    for node in copy.graph.node:
        after: list[NodeProto] = []
        if node.name in names and node.op_type not in _PAIR:
            if quantized:
                nodes += _without_pairs(node, producers, kinds, stored)
            elif kinds.get(node.output[0]) == TensorProto.FLOAT16:
                before, after = _in_float32(node, sources[node.name], weights, kinds)
                nodes += before
        nodes += [node, *after]
    kept = type(typed)()
    kept.CopyFrom(copy)
    del kept.graph.node[:]
    kept.graph.node.extend(nodes)
    _borrow(kept, exact)
    _drop_unread(kept)
    return kept


def read_keep(path: Path) -> tuple[KeptNode, ...]:
    """The nodes of a list that `bisect` wrote, or that was written by hand.

    Raises:
        UsageError: It is missing, is no such list, or names a node twice.
    """
    try:
        entries = KeepList.model_validate_json(path.read_bytes()).keep
    except (OSError, ValidationError) as error:
        said = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise UsageError(
            f"{path} is not a list of nodes to keep: {said}",
            allowed='a file of bisect, or {"keep": [{"node": "backbone.conv1/Conv"}]}',
            run=_BISECT,
        ) from error
    names = [entry.node for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{path} names {twice[0]} more than once", allowed="each node once", run=_BISECT)
    return tuple(KeptNode(node=entry.node, reason=entry.reason, asked=True) for entry in entries)


def lowered(typed: ModelProto, exact: ModelProto, precision: str) -> dict[str, str]:
    """The nodes of `typed` that `keep_higher` can raise, in the order of the graph, with what each computes in.

    Args:
        typed: After a precision pass.
        exact: The float32 graph that it was made from.
        precision: That was asked for: in an int8 graph the fp16 nodes are what is left of it, and not listed.
    """
    known = {node.name for node in exact.graph.node}
    found = {each.name: each.precision for each in operations(typed) if each.name in known}
    return {name: each for name, each in found.items() if each == precision}


def check_names(names: Sequence[str], network: ModelProto, where: str) -> None:
    """Refuse names that no node has.

    Args:
        names: That are to be kept.
        network: float32.
        where: The file that they stand in, for the message.

    Raises:
        UsageError: Names the nearest ones.
    """
    known = [node.name for node in network.graph.node]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, _NAMED, 0.6)
            raise UsageError(
                f"{where}: the network has no node {name!r}",
                allowed=", ".join(close) if close else f"names like {known[0]}; it has {len(known)} nodes",
                run=_BISECT,
            )


def element_types(model: ModelProto) -> dict[str, int]:
    """ONNX element type of every tensor that has one."""
    from onnx import shape_inference

    graph = shape_inference.infer_shapes(model).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output, *graph.input)}
    return kinds | {tensor.name: tensor.data_type for tensor in graph.initializer}


def _is_pair(producers: dict[str, NodeProto], name: str) -> bool:
    return name in producers and producers[name].op_type == _PAIR[1]


def _without_pairs(
    node: NodeProto, producers: dict[str, NodeProto], kinds: dict[str, int], stored: dict[str, TensorProto]
) -> list[NodeProto]:
    """Let `node` read past Q/DQ pairs.

    Returns:
        What has to stand before it: casts where the types differ, and a product where the pair changes the scale, as
        the front for TensorRT 8.6 does.
    """
    from onnx import helper, numpy_helper

    before = []
    for index, name in enumerate(node.input):
        if not _is_pair(producers, name):
            continue
        pair = producers[name]
        quantizer = producers.get(pair.input[0])
        if quantizer is None or quantizer.op_type != _PAIR[0]:  # stored as int8: there is nothing before it
            continue
        source = quantizer.input[0]
        if kinds.get(source) != kinds.get(name):
            before.append(_cast(source, f"{node.name}/kept/{index}", kinds[name]))
            source = before[-1].output[0]
        factor = _factor(stored, quantizer.input[1], pair.input[1])
        if factor != 1:
            constant = f"{node.name}/factor/{index}"
            value = np.array(factor, helper.tensor_dtype_to_np_dtype(kinds[name]))
            before += [
                helper.make_node("Constant", [], [constant], value=numpy_helper.from_array(value)),
                helper.make_node("Mul", [source, constant], [f"{constant}/made"], name=constant),
            ]
            source = before[-1].output[0]
        node.input[index] = source
    return before


def _factor(stored: dict[str, TensorProto], there: str, back: str) -> float:
    """By how much a pair changes what goes through it: 1 unless both scales are single numbers that differ."""
    from onnx import numpy_helper

    if there not in stored or back not in stored:
        return 1.0
    scales = [numpy_helper.to_array(stored[name]) for name in (there, back)]
    if any(scale.size != 1 for scale in scales):
        return 1.0
    factor = float(scales[1].reshape(())) / float(scales[0].reshape(()))
    return factor if abs(factor - 1) > _SAME else 1.0


def _in_float32(
    node: NodeProto, source: NodeProto, weights: Collection[str], kinds: dict[str, int]
) -> tuple[list[NodeProto], list[NodeProto]]:
    """Let `node` compute in float32; gives casts to stand before and after it."""
    from onnx import TensorProto

    before = []
    for index, name in enumerate(node.input):
        original = source.input[index] if index < len(source.input) else ""
        if original in weights:
            node.input[index] = f"{original}/kept"
        elif kinds.get(name) == TensorProto.FLOAT16:
            before.append(_cast(name, f"{node.name}/kept/{index}", TensorProto.FLOAT))
            node.input[index] = before[-1].output[0]
    after = []
    for index, name in enumerate(node.output):
        node.output[index] = f"{name}/kept"
        after.append(_cast(node.output[index], name, TensorProto.FLOAT16))
    return before, after


def _borrow(kept: ModelProto, exact: ModelProto) -> None:
    """Add the float32 weights that nodes read under the names that `_in_float32` gave."""
    read = {name for node in kept.graph.node for name in node.input}
    for tensor in exact.graph.initializer:
        if f"{tensor.name}/kept" in read:
            kept.graph.initializer.append(tensor)
            kept.graph.initializer[-1].name = f"{tensor.name}/kept"


def _drop_unread(model: ModelProto) -> None:
    """Remove nodes and weights that nothing reads any more."""
    outputs = {value.name for value in model.graph.output}
    read = set(outputs)
    nodes = []
    for node in reversed(model.graph.node):  # in the order of the graph, so one pass is enough
        if read.intersection(node.output):
            read.update(node.input)
            nodes.append(node)
    left = [tensor for tensor in model.graph.initializer if tensor.name in read]
    nodes.reverse()
    clone = [type(node).FromString(node.SerializeToString()) for node in nodes]
    kept = [type(tensor).FromString(tensor.SerializeToString()) for tensor in left]
    del model.graph.node[:]
    model.graph.node.extend(clone)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _cast(source: str, target: str, kind: int) -> NodeProto:
    from onnx import helper

    node: NodeProto = helper.make_node("Cast", [source], [target], name=target, to=kind)
    return node
