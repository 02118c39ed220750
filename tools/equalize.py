"""Channel equalization: the same float32 function, with channels that fill an int8 range evenly.

A convolution's output channel times s, and the next one's input channel by s, is the same network: ReLU, pooling and
additions let a positive factor through (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias
Correction", section 4.1). One scale per tensor must cover the widest channel, so that a channel ten times narrower
keeps three bits fewer. The factor follows the activations that calibration saw, as in SmoothQuant (Xiao et al. 2022,
equation 4). Factors are powers of two, so that no float32 number is rounded on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.graph.activations import Probe

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_COMMUTES = {"Relu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity", "Dropout", "Add"}
_QUANTILE = 0.99
_MOST = 2.0**8  # a factor beyond it belongs to a channel that calibration hardly saw


@dataclass(frozen=True)
class Group:
    """Tensors whose channels share one factor, because only ReLU, pooling and additions lie between them.

    Args:
        tensors: Names of the activations, (batch, channels, height, width).
        producers: Indices of the convolutions that write one of them.
        consumers: Indices of the convolutions that read one of them.
    """

    tensors: tuple[str, ...]
    producers: tuple[int, ...]
    consumers: tuple[int, ...]


def groups(network: ModelProto) -> list[Group]:
    """The groups of `network` whose channels can be scaled without a trace outside, in the order of the graph."""
    weights = _own_weights(network)
    constants = {tensor.name for tensor in network.graph.initializer}
    constants |= {node.output[0] for node in network.graph.node if node.op_type == "Constant"}
    parent: dict[str, str] = {}
    pinned = {value.name for value in (*network.graph.input, *network.graph.output)}

    def find(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            name = parent[name]
        return name

    convolutions: list[tuple[int, NodeProto]] = []
    for index, node in enumerate(network.graph.node):
        activations = [name for name in node.input if name and name not in constants]
        if _scalable(node, weights):
            convolutions.append((index, node))
        elif _commutes(node, network, len(activations) == len(node.input)):
            for name in activations:
                parent[find(name)] = find(node.output[0])
        else:
            pinned.update(activations, node.output)

    closed = {find(name) for name in pinned}
    found: dict[str, tuple[list[int], list[int]]] = {}
    for index, node in convolutions:
        found.setdefault(find(node.output[0]), ([], []))[0].append(index)
        found.setdefault(find(node.input[0]), ([], []))[1].append(index)
    members: dict[str, list[str]] = {}
    for name in [*parent]:
        members.setdefault(find(name), []).append(name)
    return [
        Group(tuple(members[root]), tuple(producers), tuple(consumers))
        for root, (producers, consumers) in found.items()
        if producers and consumers and root not in closed
    ]


def equalize(network: ModelProto, widest: Mapping[str, np.ndarray], alpha: float) -> ModelProto:
    """Scale the channels of every group towards one width.

    Args:
        network: float32; it is not changed.
        widest: The width of each channel, (channels,) float, of the activations that are to be even: those that int8
            holds. A group without any is left alone.
        alpha: 0 leaves the channels alone; 1 makes the activations equally wide, whatever that does to the weights; 0.5
            shares the difference between activations and weights.

    Returns:
        A new network with the same nodes and tensors, and the same outputs to the last bit but for overflow.
    """
    from onnx import numpy_helper

    equal = type(network)()
    equal.CopyFrom(network)
    if alpha == 0:
        return equal
    own = _own_weights(equal)
    own &= {name for node in equal.graph.node if _scalable(node, own) for name in node.input[1:]}
    stored = {tensor.name: tensor for tensor in equal.graph.initializer if tensor.name in own}
    values = {name: numpy_helper.to_array(tensor) for name, tensor in stored.items()}
    for group in groups(network):
        readers = [values[equal.graph.node[index].input[1]] for index in group.consumers]
        known = [widest[name] for name in group.tensors if name in widest]
        if not known or len({len(width) for width in known} | {kernel.shape[1] for kernel in readers}) > 1:
            continue  # the second: an addition spreads one channel over many
        activation = np.max(known, axis=0)
        weight = np.max([np.abs(kernel).max((0, 2, 3)) for kernel in readers], axis=0)
        factor = _factors(activation, weight, alpha)
        for index in group.producers:
            kernel, *bias = (name for name in equal.graph.node[index].input[1:] if name)
            values[kernel] = values[kernel] * factor[:, None, None, None]
            for name in bias:
                values[name] = values[name] * factor
        for index in group.consumers:
            kernel = equal.graph.node[index].input[1]
            values[kernel] = values[kernel] / factor[None, :, None, None]
    for name, value in values.items():
        stored[name].CopyFrom(numpy_helper.from_array(value.astype(np.float32), name))
    return equal


def channel_widths(
    network: ModelProto, image: str, batches: Iterable[np.ndarray], tensors: Collection[str]
) -> dict[str, np.ndarray]:
    """How wide each channel is: the value that one in a hundred exceeds.

    Neither a bright corner nor a single strange picture shall decide.

    Args:
        network: float32.
        image: Name of its input.
        batches: (N, 3, height, width) float32 RGB 0..1 each; activations of one at a time are held.
        tensors: Names of activations; those outside every group are passed over.

    Returns:
        For each of `tensors` in a group (channels,) float: the median of the batches' quantiles.
    """
    probe = Probe(network, [name for group in groups(network) for name in group.tensors if name in tensors])
    widths: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        for name, values in probe.run({image: batch}).items():
            channels = np.abs(np.moveaxis(values, 1, 0)).reshape(values.shape[1], -1)
            rank = min(int(_QUANTILE * channels.shape[1]), channels.shape[1] - 1)
            widths.setdefault(name, []).append(np.partition(channels, rank, axis=1)[:, rank])
    return {name: np.median(found, axis=0) for name, found in widths.items()}


def _factors(activation: np.ndarray, weight: np.ndarray, alpha: float) -> np.ndarray:
    """(channels,) float32 powers of two; 1 where a channel is dead."""
    alive = (activation > 0) & (weight > 0)
    if not alive.any():
        return np.ones_like(activation, np.float32)
    ratio = np.where(alive, weight, 1.0) ** (1 - alpha) / np.where(alive, activation, 1.0) ** alpha
    ratio = np.where(alive, ratio / np.exp(np.log(ratio[alive]).mean()), 1.0)  # the tensor as a whole keeps its size
    return np.asarray(np.exp2(np.round(np.log2(np.clip(ratio, 1 / _MOST, _MOST)))), np.float32)


def _own_weights(network: ModelProto) -> set[str]:
    """The stored tensors that exactly one node reads: they can be changed for its sake."""
    uses = Counter(name for node in network.graph.node for name in node.input)
    return {tensor.name for tensor in network.graph.initializer if uses[tensor.name] == 1}


def _scalable(node: NodeProto, weights: set[str]) -> bool:
    """An ordinary convolution whose weights are stored in the graph and are its own."""
    grouped = any(attribute.name == "group" and attribute.i != 1 for attribute in node.attribute)
    return node.op_type == "Conv" and not grouped and all(name in weights for name in node.input[1:] if name)


def _commutes(node: NodeProto, network: ModelProto, all_activations: bool) -> bool:
    """Whether a positive factor on a channel passes through `node` unchanged."""
    if node.op_type == "ReduceMean":
        return 1 not in _axes(node, network)
    if node.op_type == "Add":
        return all_activations  # an added constant would have to be scaled too
    return node.op_type in _COMMUTES


def _axes(node: NodeProto, network: ModelProto) -> list[int]:
    """The axes of a reduction, counted from the front; the channels' when they are not known."""
    from onnx import numpy_helper

    for attribute in node.attribute:
        if attribute.name == "axes":
            return [axis % 4 for axis in attribute.ints]
    for tensor in network.graph.initializer:
        if tensor.name in node.input[1:]:
            return [int(axis) % 4 for axis in numpy_helper.to_array(tensor)]
    return [1]
