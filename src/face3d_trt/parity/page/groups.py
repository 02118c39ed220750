"""The table of outputs and coefficient groups: for each the worst over the batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.names import MM_PER_UNIT, VERTEX
from face3d_trt.parity.strain import row_strain
from face3d_trt.parity.table import UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.parity.verdict import Row


@dataclass(frozen=True)
class Share:
    """A figure and its limit, as text; `over` where the limit is not kept."""

    found: str
    limit: str
    over: bool


@dataclass(frozen=True)
class GroupLine:
    """One output or group."""

    label: str
    inner: bool  # a group of the output above
    max_error: str
    mean_error: str
    shares: tuple[Share, ...]  # of a batch, of one picture, cosine
    used: float | None
    batch: int
    broken: int  # values that are not finite
    gated: bool
    passed: bool


@dataclass(frozen=True)
class GroupTable:
    """One candidate."""

    title: str
    lines: tuple[GroupLine, ...]


def group_table(title: str, rows: Sequence[Row]) -> GroupTable:
    """The rows of one candidate, summed up over the batches."""
    labels = dict.fromkeys((row.output, row.group) for row in rows)
    return GroupTable(title, tuple(_line([row for row in rows if (row.output, row.group) == at]) for at in labels))


def _line(rows: Sequence[Row]) -> GroupLine:
    worst = max(rows, key=lambda row: _badness(row.relative))
    single = max(rows, key=lambda row: _badness(row.worst))
    apart = min(rows, key=lambda row: -math.inf if math.isnan(row.cosine) else row.cosine)
    unit = MM_PER_UNIT if worst.output == VERTEX else 1.0
    mean = sum(row.mean_abs * row.rows for row in rows) / sum(row.rows for row in rows)
    used = [share for row in rows if (share := row_strain(row)) is not None]
    return GroupLine(
        label=worst.group or worst.output + UNITS.get(worst.output, ""),
        inner=worst.group is not None,
        max_error=_error(max((row.max_abs for row in rows), key=_badness) * unit),
        mean_error=_error(mean * unit),
        shares=(
            _share(worst.relative, worst.allowed_relative, worst.gated),
            _share(single.worst, single.allowed_worst, worst.gated),
            _cosine(apart),
        ),
        used=max(used, default=None),
        batch=worst.batch,
        broken=sum(row.nan + row.inf for row in rows),
        gated=worst.gated,
        passed=all(row.passed for row in rows),
    )


def _badness(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _error(value: float) -> str:
    return f"{value:.2e}" if math.isfinite(value) else "not finite"


def _share(value: float, allowed: float, gated: bool) -> Share:
    limit = f"{allowed * 100:g} %" if gated else ""
    if not math.isfinite(value):
        return Share("not finite", limit, True)
    return Share(_percent(value), limit, gated and value > allowed)


def _percent(share: float) -> str:
    if share < 1e-5:
        return "< 0.001 %" if share else "0 %"
    return f"{share * 100:.3g} %" if share < 10 else f"{share * 100:.0f} %" if share < 1e4 else f"{share * 100:.0e} %"


def _cosine(row: Row) -> Share:
    limit = f"{row.allowed_cosine:g}" if row.gated else ""
    if not math.isfinite(row.cosine):
        return Share("not finite", limit, True)
    return Share(f"{row.cosine:.6f}", limit, row.gated and row.cosine < row.allowed_cosine)
