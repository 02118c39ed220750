"""Figures that can be repeated: windows until they agree, and percentiles."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

NEEDED = 3  # windows in a row that have to agree
TOLERANCE = 0.03  # largest over smallest of them, minus one
MOST = 24  # windows after which the measurement is given as it is, and marked as not stable


@dataclass(frozen=True)
class Steady:
    """The median of windows that agree.

    Attributes:
        value: Median of the chosen windows, in the unit of the window.
        spread: Largest over smallest of them, minus one.
        stable: Whether that is within the tolerance.
        windows: All that were measured, in order.
    """

    value: float
    spread: float
    stable: bool
    windows: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """As a result file has it."""
        return asdict(self)


def steady(
    window: Callable[[], float], *, needed: int = NEEDED, tolerance: float = TOLERANCE, most: int = MOST
) -> Steady:
    """Measure until `needed` windows in a row agree; without that, take the consecutive ones that agree best.

    Args:
        window: Measures once and gives a positive figure.
        needed: Windows in a row.
        tolerance: Of their spread.
        most: Windows before giving up.

    Raises:
        ValueError: `most` is below `needed`, or a window is not positive.
    """
    if most < needed or needed < 1:
        raise ValueError(f"{needed} windows are needed and at most {most} allowed")
    measured: list[float] = []
    for _ in range(most):
        measured.append(float(window()))
        if measured[-1] <= 0:
            raise ValueError(f"a window measured {measured[-1]}")
        if len(measured) >= needed and spread(measured[-needed:]) <= tolerance:
            break
    runs = [measured[start : start + needed] for start in range(len(measured) - needed + 1)]
    best = min(runs, key=spread)
    return Steady(statistics.median(best), spread(best), spread(best) <= tolerance, tuple(measured))


def alternately(*windows: Callable[[], float], rounds: int = 9) -> tuple[float, ...]:
    """Medians of several measurements that take turns, so that a drift of the machine meets them all alike.

    Args:
        windows: What to measure; each is called once unrecorded.
        rounds: Turns.
    """
    for window in windows:
        window()
    turns = [[window() for window in windows] for _ in range(rounds)]
    return tuple(statistics.median(values) for values in zip(*turns, strict=True))


def spread(values: Sequence[float]) -> float:
    """Largest over smallest, minus one."""
    return max(values) / min(values) - 1


def latencies(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Percentiles of single calls, in milliseconds.

    Args:
        nanoseconds: One per call.
    """
    values = np.asarray(nanoseconds, dtype=np.float64) / 1e6
    figures = dict(zip(("p50", "p90", "p95", "p99"), np.percentile(values, (50, 90, 95, 99)), strict=True))
    figures |= {"min": values.min(), "max": values.max(), "mean": values.mean()}
    return {"calls": len(values), **{name: round(float(value), 5) for name, value in figures.items()}}


def fastest(ways: Mapping[str, Callable[[], int]], calls: int) -> tuple[str, dict[str, float]]:
    """Which of several ways to make a call takes least, and what each takes: median milliseconds.

    Args:
        ways: Each makes one call and gives its nanoseconds.
        calls: To judge by; half as many before are not counted.
    """
    medians = {}
    for name, call in ways.items():
        for _ in range(calls // 2):
            call()
        medians[name] = latencies([call() for _ in range(calls)])["p50"]
    return min(medians, key=lambda name: medians[name]), medians
