"""Which nodes of an int8 graph are worth more in higher precision: much loss at their input, little work.

Convolutions by their multiply-adds. Residual additions and poolings have none; theirs is to read activations. At the
end of a network these are small, and rounding adds up there: what an average over a picture is off by is off in every
coefficient, to the same side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from face3d_trt.graph.activations import Probe
from face3d_trt.graph.macs import activation_sizes
from face3d_trt.graph.ranges import Range, after, loss_at
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

_WITHOUT_WEIGHTS = ("Add", "AveragePool", "GlobalAveragePool", "MaxPool", "ReduceMean")


def spare_convolutions(
    network: ModelProto, ranges: Mapping[str, Range], costs: Mapping[str, int], allowed: float
) -> dict[str, tuple[float, float]]:
    """The convolutions that gain most for their multiply-adds.

    Args:
        network: float32.
        ranges: Of the activations.
        costs: Multiply-adds of each convolution.
        allowed: Share of all multiply-adds that may leave int8.

    Returns:
        For each such convolution: loss at its input, and its share of the multiply-adds.
    """
    total = sum(costs.values())
    readers: dict[str, Collection[str]] = {
        tensor: [node.name for node in network.graph.node if node.name in costs and node.input[0] == tensor]
        for tensor in ranges
    }
    share = {tensor: sum(costs[name] for name in names) / total for tensor, names in readers.items() if names}
    spared: dict[str, tuple[float, float]] = {}
    left = allowed
    for tensor in sorted(share, key=lambda tensor: (-ranges[tensor].loss / max(share[tensor], 1e-12), tensor)):
        if ranges[tensor].loss == 0 or share[tensor] > left:
            break  # the next ones give less for their multiply-adds
        left -= share[tensor]
        spared |= {name: (ranges[tensor].loss, costs[name] / total) for name in readers[tensor]}
    return spared


def spare_readers(
    network: ModelProto,
    image: str,
    ranges: Mapping[str, Range],
    pictures: np.ndarray,
    *,
    allowed: float,
    worth: float,
    report: Reporter = SILENT,
) -> dict[str, tuple[float, float]]:
    """The additions and poolings that gain most for what they read.

    Args:
        network: float32, with one output.
        image: Name of its input.
        ranges: Of the activations that are int8.
        pictures: (N, 3, height, width) float32 RGB 0..1, those of the ranges.
        allowed: Share of all int8 activations, each counted as often as it is read, that they may read.
        worth: Relative error of the output, by one such node alone, from which it is worth anything.
        report: Hears progress.

    Returns:
        For each such node: the squared relative error of the output with it alone in int8, and its share.
    """
    sizes = activation_sizes(network, *pictures.shape[2:])
    read = [(node, name) for node in network.graph.node for name in node.input if name in ranges]
    total = max(1, sum(sizes[name] for _, name in read))
    # all that read a tensor lose about as much as any one of them, or more
    asked = {
        node.name: (name, sizes[name] / total)
        for node, name in read
        if node.op_type in _WITHOUT_WEIGHTS and ranges[name].loss > worth**2 and sizes[name] / total <= allowed
    }
    losses = _losses(network, image, ranges, {node: name for node, (name, _) in asked.items()}, pictures, report)
    spared: dict[str, tuple[float, float]] = {}
    left = allowed
    for node in sorted(losses, key=lambda node: (-losses[node] / asked[node][1], node)):
        if losses[node] <= worth**2 or asked[node][1] > left:
            break
        left -= asked[node][1]
        spared[node] = (losses[node], asked[node][1])
    return spared


def _losses(
    network: ModelProto,
    image: str,
    ranges: Mapping[str, Range],
    asked: Mapping[str, str],
    pictures: np.ndarray,
    report: Reporter,
) -> dict[str, float]:
    """What the output loses when one node alone reads its tensor in int8."""
    if not asked:
        return {}
    output = network.graph.output[0].name
    rests = {node: after(network, tensor, (node,)) for node, tensor in asked.items()}
    looked = [output, *asked.values(), *(name for _, needed in rests.values() for name in needed)]
    values = Probe(network, looked).run({image: pictures})
    losses = {}
    for done, (node, (rest, needed)) in enumerate(rests.items(), 1):
        given = {name: values[name] for name in (asked[node], *needed)}
        losses[node] = loss_at(Probe(rest, [output]), given, values[output], ranges[asked[node]].widest)
        report.progress("weighing additions and poolings", done, len(rests))
    return losses
