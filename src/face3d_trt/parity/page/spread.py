"""How an error spreads over the pictures: a dot for each, and the limits. Coordinates of SVG; the template draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.meaning_table import number
from face3d_trt.parity.page.axis import Axis, axis_between

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from face3d_trt.parity.verdict import FaceRow, MeaningRow

WIDTH, HEIGHT = 280, 92
LEFT, RIGHT = 8, 272  # of the axis
TOP, BASE = 22, 70  # of the limits' lines; BASE is the axis
DOT = 4.0  # px between dots
LABEL = 40  # px that a limit's label takes, to the left of its line
MARGIN = 1.04  # of the axis beyond the worst value


@dataclass(frozen=True)
class Limit:
    """A limit's line.

    Attributes:
        x: Where.
        name: `median`, `95 %` or `worst`; empty where there is no room for it.
    """

    x: float
    name: str


@dataclass(frozen=True)
class Panel:
    """One measure over the pictures.

    Attributes:
        title: `landmarks, mean`.
        unit: `px`.
        good: SVG path, a dot for each picture within the limit of the worst.
        bad: The same beyond it.
        median: Where the median lies; None: it is not finite.
        limits: The limits' lines.
        ticks: Position and label.
        text: All of it in words.
    """

    title: str
    unit: str
    good: str
    bad: str
    median: float | None
    limits: tuple[Limit, ...]
    ticks: tuple[tuple[float, str], ...]
    text: str


def panels(rows: Sequence[MeaningRow], faces: Sequence[FaceRow]) -> tuple[Panel, ...]:
    """A panel for each measure of one candidate.

    Args:
        rows: Its measures.
        faces: Its pictures.
    """
    return tuple(
        _panel(row, [face.values[row.measure] for face in faces if row.measure in face.values]) for row in rows
    )


def _panel(row: MeaningRow, values: Sequence[float]) -> Panel:
    axis = _axis(row, [value for value in values if math.isfinite(value)])
    dots = list(_dots([_x(axis, value) for value in values]))
    over = [_over(value, row) for value in values]
    return Panel(
        title=MEASURES[row.measure].title,
        unit=row.unit,
        good=_path(dot for dot, bad in zip(dots, over, strict=True) if not bad),
        bad=_path(dot for dot, bad in zip(dots, over, strict=True) if bad),
        median=_x(axis, row.median) if math.isfinite(row.median) else None,
        limits=tuple(_limits(axis, row)),
        ticks=tuple((_x(axis, tick), label) for tick, label in axis.labels),
        text=_text(row, sum(not math.isfinite(value) for value in values)),
    )


def _allowed(row: MeaningRow) -> dict[str, float]:
    if not row.gated:
        return {}
    limits = {"median": row.allowed_median, "95 %": row.allowed_p95, "worst": row.allowed_worst}
    return {name: value for name, value in limits.items() if value is not None}


def _axis(row: MeaningRow, finite: Sequence[float]) -> Axis:
    """From the best value to the worst value or limit, whichever is worse."""
    shown = [*finite, *_allowed(row).values()]
    if row.better == "low":
        return axis_between(0.0, max(shown, default=0.0) * MARGIN)
    best, worst = max(shown, default=1.0), min(shown, default=0.0)
    best = 1.0 if row.measure.endswith("_ssim") else best
    return axis_between(best, worst - (best - worst) * (MARGIN - 1))


def _over(value: float, row: MeaningRow) -> bool:
    if not math.isfinite(value):
        return True
    limit = _allowed(row).get("worst")
    return limit is not None and (value > limit if row.better == "low" else value < limit)


def _x(axis: Axis, value: float) -> float:
    return round(LEFT + (RIGHT - LEFT) * (axis.at(value) if math.isfinite(value) else 1.0), 1)


def _dots(positions: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Dots that fall together stand above each other; columns that would be too high are pressed together."""
    columns = [round(x / DOT) for x in positions]
    counts = {column: columns.count(column) for column in set(columns)}
    seen: dict[int, int] = {}
    room = BASE - TOP - 2 * DOT
    for x, column in zip(positions, columns, strict=True):
        height = seen.get(column, 0)
        seen[column] = height + 1
        step = min(DOT, room / counts[column])
        yield x, round(BASE - DOT - height * step, 1)


def _path(dots: Iterator[tuple[float, float]]) -> str:
    """Lines without a length, which round caps make dots of: a tenth of the bytes of circles."""
    return "".join(f"M{x:g} {y:g}h0" for x, y in dict.fromkeys(dots))


def _limits(axis: Axis, row: MeaningRow) -> Iterator[Limit]:
    end = math.inf
    drawn = []
    for name, value in reversed(_allowed(row).items()):  # the worst first: it decides alone
        x = _x(axis, value)
        drawn.append(Limit(x, name if end - x >= LABEL and x - LEFT >= LABEL else ""))
        end = x if drawn[-1].name else end
    yield from reversed(drawn)


def _text(row: MeaningRow, broken: int) -> str:
    unit = f" {row.unit}" if row.unit else ""
    found = {"median": row.median, "95 %": row.p95, "worst": row.worst}
    limits = _allowed(row)
    parts = [
        f"{name} {number(value, row.measure)}{unit}" + (f", limit {limits[name]:g}" if name in limits else "")
        for name, value in found.items()
    ]
    not_finite = f"; {broken} not finite" if broken else ""
    return f"{MEASURES[row.measure].label} of {row.pictures} pictures: {'; '.join(parts)}{not_finite}"
