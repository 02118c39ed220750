"""Errors in mm, px and so on as tables for people; 80 columns are enough."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.meaning_gate import ENOUGH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from face3d_trt.parity.verdict import MeaningRow

IMAGES_SHOWN = 3


def meaning_table(title: str, rows: Sequence[MeaningRow]) -> Table:
    """One candidate: a line for each measure."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold", padding=0, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("median", "limit", "95 %", "limit", "worst", "limit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_row(
            MEASURES[row.measure].label,
            number(row.median, row.measure),
            _limit(row.allowed_median, row.gated),
            number(row.p95, row.measure),
            _limit(row.allowed_p95, row.gated),
            number(row.worst, row.measure),
            _limit(row.allowed_worst, row.gated),
            ("ok" if row.gated else "-") if row.passed else "FAIL",
        )
    return table


def explanation(rows: Sequence[MeaningRow], head_mm: tuple[float, float, float] | None) -> str:
    """What the columns are, and how large a mm is here."""
    few = f", limited from {ENOUGH} pictures on" if rows[0].pictures < ENOUGH else ""
    text = f"{rows[0].pictures} pictures, each with its worst batch; 95 %: what 95 % of the pictures keep{few}"
    if head_mm is None:
        return text
    width, height, depth = (round(side) for side in head_mm)
    return f"{text}. The mean face is {width} mm wide, {height} high and {depth} deep"


def exact_graph(title: str, rows: Sequence[MeaningRow]) -> str:
    """A line in the place of a table of zeros."""
    worst = {row.measure: row.worst for row in rows}
    parts = [
        f"{number(worst[name], name)} {MEASURES[name].unit}"
        for name in ("vertex_max", "mesh_max", "landmark_max")
        if name in worst
    ]
    return f"{title}: at most {', '.join(parts)} off"


def worst_images(rows: Sequence[MeaningRow]) -> str:
    """`a.jpg (in 12 of 16 lines), b.jpg (3)`: the pictures that are worst most often."""
    (first, count), *others = Counter(row.worst_image for row in rows).most_common(IMAGES_SHOWN)
    return ", ".join([f"{first} (in {count} of {len(rows)} lines)", *(f"{image} ({n})" for image, n in others)])


def _limit(value: float | None, gated: bool) -> str:
    return f"{value:g}" if gated and value is not None else "-"


def number(value: float, measure: str) -> str:
    """Four significant digits at most, five decimals for SSIM, no exponent below a million."""
    if not math.isfinite(value):
        return "-"
    if not MEASURES[measure].unit:
        return f"{value:.{5 if value >= 0 else 4}f}"
    if abs(value) >= 1e6:
        return f"{value:.0e}"
    digits = max(0, min(4, 3 - math.floor(math.log10(abs(value))))) if value else 0
    return f"{value:.{digits}f}"
