"""What `bench compare` found, in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from face3d_trt.bench.page.series import MODE_TITLES
from face3d_trt.bench.page.words import percent, significant

if TYPE_CHECKING:
    from rich.console import Console

    from face3d_trt.bench.records import Row
    from face3d_trt.bench.regress import Change, Regression

SHOWN = 12  # ratios in the table


def show(found: Regression, console: Console) -> None:
    """Print the ratios that got worst, what vanished, and the result as the last line."""
    from rich.table import Table

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    for note in found.notes:
        say(f"note: the runs differ: {note}")
    table = Table("row", "of", "old", "new", "worse by", box=None, pad_edge=False)
    for change in found.changes[:SHOWN]:
        style = "red" if change.worse > found.limit else None
        cells = (
            row_name(change.row),
            change.measure,
            significant(change.old),
            significant(change.new),
            percent(change.worse),
        )
        table.add_row(*cells, style=style)
    if found.changes:
        say("each row over its baseline, less is better; the worst first")
        console.print(table)
        if len(found.changes) > SHOWN:
            say(f"and {len(found.changes) - SHOWN} more")
    for row in found.absent:
        say(f"vanished: {row_name(row)} is not in the new run")
    for row, why in found.lost:
        say(f"lost: {row_name(row)}: {why}", "red")
    for row in found.added:
        say(f"new: {row_name(row)}")
    for row in found.alone:
        say(f"not compared: {row_name(row)} has no baseline in both runs")
    say(_result(found), "green" if found.passed else "red")


def row_name(row: Row) -> str:
    """`trt a.int8.plan, batch 8, engine only`."""
    plan = f" {row.plan}" if row.plan else ""
    return f"{row.backend}{plan}, batch {row.batch}, {MODE_TITLES[row.mode].lower()}"


def _result(found: Regression) -> str:
    limit = percent(found.limit)
    if found.worsened:
        return f"FAILED: {'; '.join(map(_worsened, found.worsened[:SHOWN]))}; allowed are {limit}"
    if found.lost:
        return f"FAILED: {len(found.lost)} rows that had figures were skipped"
    if not found.changes:
        return "NOTHING COMPARED: the runs share no two rows of one mode and batch"
    return f"PASSED: none of {len(found.changes)} ratios got worse by more than {limit}"


def _worsened(change: Change) -> str:
    return f"{row_name(change.row)}: {change.measure} {percent(change.worse)} worse against {row_name(change.base)}"
