"""Axes: a range, and ticks at round numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

TICKS = 4
ROUNDING = 1e-6  # 2.0000001 is 2


@dataclass(frozen=True)
class Axis:
    """A range of values, drawn from left to right.

    Attributes:
        low: At the left end; larger than `high` where more is better, so that right is always worse.
        high: At the right end.
        ticks: Values at which it is labelled, from left to right.
    """

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where a value lies: 0 at the left end, 1 at the right end, and never beyond."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def percent(self, value: float) -> str:
        """The same for CSS: `42.5%`."""
        return f"{100 * self.at(value):.2f}%"

    @property
    def labels(self) -> tuple[tuple[float, str], ...]:
        """The ticks with their texts, all with as many decimals."""
        gaps = [abs(b - a) for a, b in zip(self.ticks, self.ticks[1:], strict=False)]
        step = min(gaps, default=abs(self.high - self.low) or 1.0)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        digits += any(abs(round(tick, digits) - tick) > step / 100 for tick in self.ticks)  # 2.5, of a step of 2.5
        return tuple((tick, f"{tick:.{digits}f}") for tick in self.ticks)


def axis_between(better: float, worse: float, ticks: int = TICKS) -> Axis:
    """From `better` at the left to `worse` at the right, with round ticks inside."""
    from matplotlib.ticker import MaxNLocator

    if better == worse:
        worse = better + (abs(better) or 1.0)
    low, high = sorted((better, worse))
    inside = [float(tick) for tick in MaxNLocator(ticks).tick_values(low, high) if low <= tick <= high]
    return Axis(better, worse, tuple(inside if better < worse else reversed(inside)))


def axis_to(largest: float) -> Axis:
    """From 0 to a round number that is no less than `largest`, with ticks at both ends."""
    from matplotlib.ticker import MaxNLocator

    if not largest > 0:
        return Axis(0.0, 1.0, (0.0, 1.0))
    ticks = tuple(
        float(tick) for tick in MaxNLocator(TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(0, largest * (1 - ROUNDING))
    )
    return Axis(0.0, ticks[-1], ticks)
