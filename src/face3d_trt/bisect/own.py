"""Each node by itself: how far its own output is off, and whether its rounding explains that.

A typed node is given the float32 activations. What it makes of them is held against the float32 node on the same
activations, rounded as the typed graph's Q/DQ pairs say, with the float32 weights, rounded per output channel to their
largest value over 127. What is left is no quantization: other weights, another order of channels, a DQ that undoes
another scale than its Q applied. A range that does not fit the activations is seen from the activations themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.bisect.pair import Array, Pair, run

if TYPE_CHECKING:
    from onnx import NodeProto

    from face3d_trt.records import Precision

# Share of a channel's output, by the precision of the graph. Measured on the stand-in: 1.9 % at most in int8 graphs,
# whatever calibrated them (weights that lie between two steps), 0.24 % in the fp16 graph.
UNEXPLAINED = {"int8": 0.05, "fp16": 0.02, "fp32": 0.001}
CLIPPED = 0.1  # share of the values that are not zero; calibrators cut 1 % at most, on white noise 4 %
# Range over the largest value in a picture, the median over the pictures. The default calibration gave 1.5 at most,
# whatever it saw; the others gave 3.2 in graphs that nearly pass, and 20 in bad ones, after one strange picture.
UNUSED = {"output": 2.0, "entropy": 4.0, "max": 4.0}
_ANY = 4.0  # where nobody knows what calibrated
_STEPS = 127  # from 0 to the end of the range
_FLOOR = 0.1  # a channel is measured against no less than this share of the whole output's size


@dataclass(frozen=True)
class Own:
    """One node by itself.

    Attributes:
        output: What the typed node makes of float32 activations.
        error: Root mean square of its difference to float32, over that of the float32 output.
        damage: What is wrong with it beyond rounding; None: nothing is.
        misfit: Likewise, but of the range alone, which higher precision does away with.
    """

    output: Array
    error: float
    damage: str | None
    misfit: str | None = None


def own(
    pair: Pair,
    name: str,
    values: Mapping[str, Array],
    precision: Precision,
    fed: Mapping[str, Array] | None = None,
    method: str | None = None,
) -> Own:
    """Look at one node.

    Args:
        pair: Both graphs.
        name: Of the node.
        values: Float32 activations: the node's inputs and its first output.
        precision: Of the typed graph.
        fed: What the typed node is given in their place, by the same names.
        method: How the ranges were found; None: nobody knows.
    """
    node = pair.nodes[name]
    model, given = pair.alone(name)
    known = {**values, **(fed or {})}
    output = run(model, {tensor: known[source] for tensor, source in given.items()})[0]
    right = values[node.output[0]]
    if not np.isfinite(output).all():
        return Own(output, np.inf, None, f"given finite inputs its output is not finite in {precision}")
    inputs, ranges = _rounded_inputs(pair, node, values)
    explained = run(pair.single(node.name), inputs)[0]
    share, channel = _worst_channel(output, explained, right)
    damage = None
    if share > UNEXPLAINED[precision]:
        damage = (
            f"given right inputs, channel {channel} of its output is off by {share:.0%} more than rounding explains"
        )
    return Own(output, _relative(output, right), damage, None if damage else _misfit(ranges, method))


def _misfit(ranges: Sequence[tuple[float, float]], method: str | None) -> str | None:
    for clipped, unused in ranges:
        if clipped > CLIPPED:
            return f"the range of its Q/DQ pair cuts {clipped:.0%} of the values"
        if unused > UNUSED.get(method or "", _ANY):
            used = max(1, round(_STEPS / unused))
            return (
                f"the range of its Q/DQ pair is {unused:.1f} times the largest value of a typical picture, "
                f"which so uses {used} of {_STEPS} steps"
            )
    return None


def _rounded_inputs(
    pair: Pair, node: NodeProto, values: Mapping[str, Array]
) -> tuple[dict[str, Array], list[tuple[float, float]]]:
    """The inputs of the float32 node, rounded as the typed one's Q/DQ pairs say.

    Returns:
        They, and for each activation that is rounded: the share of its values that is cut, and the range over the
        largest of a picture.
    """
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in pair.exact.graph.initializer}
    pairs = {index for index, _, _ in pair.quantizers(node.name)}
    inputs: dict[str, Array] = {}
    ranges = []
    for index, tensor in enumerate(node.input):
        if not tensor:
            continue
        value = numpy_helper.to_array(weights[tensor]) if tensor in weights else values[tensor]
        if index in pairs and tensor in weights:
            value = _ideal_weights(value, axis=0 if node.op_type == "Conv" else value.ndim - 1)
        elif index in pairs:
            step = pair.step(node.name, index)
            if step is not None and step > 0:
                ranges.append(_fit(value, _STEPS * step))
                value = (np.clip(np.rint(value / step), -128, 127) * step).astype(np.float32)
        inputs[tensor] = value
    return inputs, ranges


def _ideal_weights(weights: Array, axis: int) -> Array:
    others = tuple(each for each in range(weights.ndim) if each != axis)
    step = np.maximum(np.abs(weights).max(axis=others, keepdims=True), 1e-30) / 127
    return np.asarray(np.rint(weights / step) * step, np.float32)


def _fit(values: Array, widest: float) -> tuple[float, float]:
    """Share of the values other than 0 that a range cuts, and the range over the largest value of a typical picture.

    One picture unlike all others says nothing about the range, so it is the median over the pictures.
    """
    size = np.abs(values)
    largest = float(np.median(size.reshape(len(size), -1).max(axis=1)))
    cut = float((size > widest).sum() / max(1, int((size > 0).sum())))
    return cut, widest / largest if largest > 0 else 1.0


def _worst_channel(output: Array, explained: Array, right: Array) -> tuple[float, int]:
    """The largest share of a channel's size that is not explained, and that channel; the median over the pictures."""
    if output.ndim < 2:
        return _relative(output, explained), 0
    others = tuple(range(2, output.ndim))
    missing = np.sqrt(np.square(output - explained, dtype=np.float64).mean(axis=others))
    size = np.sqrt(np.square(right, dtype=np.float64).mean(axis=others))
    floor = _FLOOR * np.sqrt(np.square(size).mean(axis=1, keepdims=True))
    shares = np.median(missing / np.maximum(np.maximum(size, floor), 1e-30), axis=0)
    channel = int(shares.argmax())
    return float(shares[channel]), channel


def _relative(output: Array, right: Array) -> float:
    with np.errstate(all="ignore"):
        error = np.sqrt(np.square(output - right, dtype=np.float64).mean())
        size = np.sqrt(np.square(right, dtype=np.float64).mean())
    return float(error / size) if size > 0 else float(error)
