"""The int8 range of each activation by what the network's output loses.

Calibrators look at one tensor: entropy keeps its histogram, MSE its values. But a wide outlier may mean nothing to the
result and a rare one everything. Here each tensor is quantized alone, the rest of the network follows in float32, and
the range is taken at which the output changes least. Only what lies after the tensor is computed again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.graph.activations import Probe
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_STEP = 0.8  # between neighbouring ranges; half a step costs a few percent of the error
_COUNTED = 0.9  # share of the pictures
_QUANTILES = (0.999, 0.9995, 0.9999, 0.99999, 1.0)  # where the search looks first; the loss has more than one valley
_SCALE, _ROUNDED = "range/scale", "range/rounded"
_LOW, _HIGH = "range/low", "range/high"


@dataclass(frozen=True)
class Range:
    """What was found for one tensor.

    Args:
        widest: The absolute value that becomes 127.
        loss: What `output_loss` says with this tensor alone in int8; its root is a relative error.
    """

    widest: float
    loss: float


def find_ranges(
    network: ModelProto, image: str, tensors: Sequence[str], pictures: np.ndarray, report: Reporter = SILENT
) -> dict[str, Range]:
    """Search the range of each of `tensors`.

    Args:
        network: float32, with one output.
        image: Name of its input.
        tensors: Activations that are to be int8.
        pictures: (N, 3, height, width) float32 RGB 0..1; their activations are held at once: a dozen do.
        report: Hears progress.

    Returns:
        A range for each tensor. The input of a MaxPool has the range of its output: the largest of rounded values is
        the rounded largest one, so that the second rounding costs nothing.
    """
    pooled = {
        node.input[0]: node.output[0]
        for node in network.graph.node
        if node.op_type == "MaxPool" and node.input[0] in tensors and node.output[0] in tensors
    }
    searched = [name for name in tensors if name not in pooled]
    output = network.graph.output[0].name
    rests = {tensor: after(network, tensor) for tensor in searched}
    looked = [*searched, output, *(name for _, needed in rests.values() for name in needed)]
    values = Probe(network, looked).run({image: pictures})
    found: dict[str, Range] = {}
    for done, (tensor, (rest, needed)) in enumerate(rests.items(), 1):
        given = {name: values[name] for name in (tensor, *needed)}
        loss = functools.partial(loss_at, Probe(rest, [output]), given, values[output])
        found[tensor] = _search(np.abs(values[tensor]).ravel(), loss)
        report.progress("searching ranges", done, len(searched))
    return found | {name: Range(found[after_pool].widest, 0.0) for name, after_pool in pooled.items()}


def loss_at(probe: Probe, given: dict[str, np.ndarray], exact: np.ndarray, widest: float) -> float:
    """`output_loss` with a tensor rounded.

    Args:
        probe: Of what `after` gives; its one tensor is the network's output.
        given: The tensor, and what else that needs.
        exact: The output without rounding.
        widest: The absolute value that becomes 127.
    """
    changed = probe.run({**given, _SCALE: np.array(widest / 127, np.float32)})
    return output_loss(changed[probe.tensors[0]], exact)


def output_loss(changed: np.ndarray, exact: np.ndarray) -> float:
    """Squared error over variance between pictures, (N, outputs), averaged over outputs and over most pictures.

    The tenth that is hit hardest is left out: one picture in a hundred has activations ten times as large as all the
    others', and a range that does it justice is too coarse for them. An output that hardly varies is measured against
    its size, or else against the others' variance.
    """
    squared = exact.astype(np.float64) ** 2
    spread = exact.astype(np.float64).var(0)
    spread = np.maximum(spread, 1e-3 * squared.mean(0))
    spread = np.maximum(spread, 1e-6 * spread.max() + 1e-30)
    pictures = np.sort(((changed - exact) ** 2 / spread).mean(1))
    return float(pictures[: max(1, int(_COUNTED * len(pictures)))].mean())


def _search(values: np.ndarray, loss: Callable[[float], float]) -> Range:
    """Look at a few quantiles of `values`, then walk downhill from the best of them."""
    most = float(values.max())
    if most == 0:
        return Range(1.0, 0.0)  # a dead tensor: any range holds it
    ranks = [min(int(share * values.size), values.size - 1) for share in _QUANTILES]
    ordered = np.partition(values, sorted(set(ranks)))
    seen = {widest: loss(widest) for widest in {float(ordered[rank]) or most for rank in ranks}}

    def best() -> float:
        return min(sorted(seen), key=lambda widest: seen[widest])

    here = None
    while here != best():
        here = best()
        for there in (min(here / _STEP, most), here * _STEP):
            if there not in seen:
                seen[there] = loss(there)
    return Range(best(), seen[best()])


def after(
    network: ModelProto, tensor: str, readers: Collection[str] | None = None
) -> tuple[ModelProto, tuple[str, ...]]:
    """What depends on `tensor`, with `tensor` rounded to int8 first.

    Args:
        network: float32.
        tensor: An activation.
        readers: Nodes that read the rounded one; None: all that read it.

    Returns:
        The rest of the network, whose inputs are `tensor`, the scale `range/scale` and what else it needs; and the
        names of that.
    """
    from onnx import TensorProto, helper, numpy_helper

    reached, nodes = {tensor}, []
    for node in network.graph.node:
        if reached.intersection(node.input):
            reached.update(node.output)
            nodes.append(_renamed(node, tensor) if readers is None or node.name in readers else node)
    stored = {value.name for value in network.graph.initializer}
    used = dict.fromkeys(name for node in nodes for name in node.input if name)
    needed = tuple(name for name in used if name not in reached | stored | {_ROUNDED, tensor})

    rest = type(network)()
    rest.CopyFrom(network)
    for field in ("node", "input", "initializer", "value_info"):
        rest.graph.ClearField(field)
    # Not a Q/DQ pair: ONNX Runtime's optimizer would move it. Round goes to even, as QuantizeLinear does.
    for kind, inputs, made in (
        ("Div", [tensor, _SCALE], "range/steps"),
        ("Round", ["range/steps"], "range/whole"),
        ("Clip", ["range/whole", _LOW, _HIGH], "range/codes"),
        ("Mul", ["range/codes", _SCALE], _ROUNDED),
    ):
        rest.graph.node.append(helper.make_node(kind, inputs, [made]))
    rest.graph.node.extend(nodes)
    rest.graph.initializer.extend(value for value in network.graph.initializer if value.name in used)
    for name, bound in ((_LOW, -128), (_HIGH, 127)):
        rest.graph.initializer.append(numpy_helper.from_array(np.array(bound, np.float32), name))
    for name in (tensor, *needed):
        rest.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    rest.graph.input.append(helper.make_tensor_value_info(_SCALE, TensorProto.FLOAT, []))
    return rest, needed


def _renamed(node: NodeProto, tensor: str) -> NodeProto:
    copy = type(node)()
    copy.CopyFrom(node)
    copy.input[:] = [_ROUNDED if name == tensor else name for name in node.input]
    return copy
