"""How much of an engine computes in which precision: by layers, by time, by convolutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.engine.layers import MOVES

if TYPE_CHECKING:
    from face3d_trt.records import LayerRecord

REFORMAT = "reformat"
ORDER = ("int8", "fp16", "fp32", "other", REFORMAT)


@dataclass(frozen=True)
class Shares:
    """Shares from 0 to 1 that add up to 1, by "int8", "fp16", "fp32", "other" and "reformat"; none of them is 0.

    Args:
        layers: Of the layers.
        time: Of the time of one run; None where it was not measured.
        convolutions: How many convolutions compute in each precision.
    """

    layers: dict[str, float]
    time: dict[str, float] | None
    convolutions: dict[str, int]

    def describe(self, precision: str) -> str:
        """One line: "53 of 54 convolutions int8; time: 78 % int8, 15 % fp16, 7 % reformat"."""
        what, of = ("time", self.time) if self.time else ("layers", self.layers)
        parts = [f"{what}: {percentages(of)}"] if of else []
        if self.convolutions:
            found = self.convolutions.get(precision, 0)
            parts.insert(0, f"{found} of {sum(self.convolutions.values())} convolutions {precision}")
        return "; ".join(parts) or "no layers listed"


def shares(layers: Iterable[LayerRecord]) -> Shares:
    """Sum up `layers`. Moving and converting data is "reformat", whatever its type."""
    listed = list(layers)
    counts: dict[str, float] = dict.fromkeys(ORDER, 0.0)
    times: dict[str, float] = dict.fromkeys(ORDER, 0.0)
    convolutions: Counter[str] = Counter()
    for layer in listed:
        group = REFORMAT if layer.kind == MOVES else layer.precision
        counts[group] += 1
        times[group] += layer.time_ms or 0.0
        convolutions[layer.precision] += layer.convolution
    timed = any(layer.time_ms for layer in listed)
    return Shares(_normalised(counts), _normalised(times) if timed else None, _ordered(convolutions))


def percentages(of: Mapping[str, float]) -> str:
    """Write "78 % int8, 15 % fp16, 7 % reformat"; below one per cent "<1 %"."""
    return ", ".join(f"{_percent(share)} {name}" for name, share in of.items())


def _percent(share: float) -> str:
    return "<1 %" if share < 0.01 else f"{share:.0%}".replace("%", " %")


def _normalised(sums: Mapping[str, float]) -> dict[str, float]:
    total = sum(sums.values())
    return {name: sums[name] / total for name in ORDER if sums.get(name)} if total else {}


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in ORDER if counts.get(name)}
