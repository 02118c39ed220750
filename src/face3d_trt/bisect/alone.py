"""What each node costs: it alone computes in its lower precision, and the rest of the network follows in float32.

The other way about (all lowered, and one at a time not) says less: clipped values that pass through several ranges are
lost once, so that no single node brings them back. docs/accuracy.md has both, measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.bisect.own import Own, own
from face3d_trt.bisect.pair import Array, Pair, run
from face3d_trt.names import COEFFS, GROUPS, INPUT
from face3d_trt.parity.metrics import scale
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.bisect.state import State
    from face3d_trt.records import Precision

_ORDERS = ("BGR", "GRB", "RBG", "GBR", "BRG")
_RIGHTED = 0.25  # share of the error that is left when the channels come in the right order
_WRONG = 0.2  # error, in shares of the variation between pictures, above which other orders are tried


@dataclass(frozen=True)
class Found:
    """One node.

    Attributes:
        errors: By coefficient group, of the variation between pictures; {} when not finite.
        own_error: Of its own output; None: not finite.
        damage: As in Own.
        misfit: As in Own.
    """

    errors: dict[str, float]
    own_error: float | None
    damage: str | None
    misfit: str | None


def channel_order(pair: Pair, pictures: Array, right: Array) -> str:
    """The order in which the typed graph reads the colours: "RGB", or another in which it is right and else is not.

    Args:
        pair: Both graphs, up to the coefficients.
        pictures: As the graph takes them.
        right: Their coefficients.
    """
    before = _total(run(pair.rounded, {INPUT: pictures})[0], right)
    if before < _WRONG:
        return "RGB"
    found = {order: _total(run(pair.rounded, {INPUT: reordered(pictures, order)})[0], right) for order in _ORDERS}
    best = min(found, key=lambda order: found[order])
    return best if found[best] < _RIGHTED * before else "RGB"


def reordered(pictures: Array, order: str) -> Array:
    """RGB pictures, (N, 3, height, width) float32 or (N, height, width, 3) uint8, with their channels in `order`."""
    channels = ["RGB".index(colour) for colour in order]
    return np.ascontiguousarray(pictures[..., channels] if pictures.dtype == np.uint8 else pictures[:, channels])


def measure_nodes(
    pair: Pair,
    names: Sequence[str],
    pictures: Array,
    precision: Precision,
    order: str,
    state: State,
    report: Reporter = SILENT,
    method: str | None = None,
) -> dict[str, Found]:
    """Measure every node of the float32 graph by itself, and those of `names` by what they cost.

    Args:
        pair: Both graphs, up to the coefficients.
        names: Nodes that are lowered.
        pictures: As the graph takes them; the activations of all are held at once.
        precision: Of the typed graph.
        order: In which the typed graph reads the colours.
        state: What was found before, and where to put what is found.
        report: Hears progress.
        method: How the typed graph was calibrated; None: nobody knows.
    """
    missing = [name for name in pair.nodes if name not in state.nodes]
    if missing:
        values = _activations(pair, pictures)
        fed = {INPUT: reordered(pictures, order)}
        right = values[COEFFS]
        for done, name in enumerate(missing, 1):
            found = own(pair, name, values, precision, fed, method)
            costly = name in names or found.damage is not None
            errors = _errors(_coefficients(pair, name, found, values), right) if costly else {}
            finite = bool(np.isfinite(found.error))
            state.add(name, Found(errors, found.error if finite else None, found.damage, found.misfit))
            report.progress("measuring nodes", len(pair.nodes) - len(missing) + done, len(pair.nodes))
    return {name: state.nodes[name] for name in pair.nodes}


def _activations(pair: Pair, pictures: Array) -> dict[str, Array]:
    from face3d_trt.bisect.pair import activations

    stored = {tensor.name for tensor in pair.exact.graph.initializer}
    read = dict.fromkeys(name for node in pair.nodes.values() for name in (*node.input, node.output[0]))
    return activations(pair.exact, pictures, [name for name in read if name and name not in stored])


def _coefficients(pair: Pair, name: str, found: Own, values: Mapping[str, Array]) -> Array:
    """With this node alone as the typed graph has it."""
    tensor = pair.nodes[name].output[0]
    if tensor == COEFFS:
        return found.output
    rest, needed = pair.rest(tensor)
    return run(rest, {tensor: found.output, **{each: values[each] for each in needed}}, exact=True)[0]


def _errors(changed: Array, right: Array) -> dict[str, float]:
    """By coefficient group, as `compare` has it; {} when not finite."""
    if not np.isfinite(changed).all():
        return {}
    return dict(_by_group(changed, right))


def _by_group(changed: Array, right: Array) -> Iterator[tuple[str, float]]:
    for group, columns in GROUPS.items():
        error = np.square(changed[:, columns] - right[:, columns], dtype=np.float64).sum(axis=1).mean()
        yield group, float(np.sqrt(error) / scale(right[:, columns]).value)


def _total(changed: Array, right: Array) -> float:
    """Root mean square over the groups; infinite when not finite."""
    if not np.isfinite(changed).all():
        return float("inf")
    return float(np.sqrt(np.mean([error**2 for _, error in _by_group(changed, right)])))
