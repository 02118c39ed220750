"""A bisection as a table on stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from face3d_trt.bisect.until import Outcome
    from face3d_trt.records import BisectRecord, Sensitivity

TRIES_WIDTH = 120
_TITLES = ("method", "kept", "worst group", "worst in the face", "of limit", "judged", "int8", "mult-adds", "ms", "")
SHOWN = 12  # rows of the ranking; all of it is in the file


def show(record: BisectRecord, output: Path, console: Console) -> None:
    """Print the ranking's head, what is to be kept, and the verdict."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("node", "of limit", "in", "own error", "mult-adds"):
        table.add_column(title, justify="left" if title in ("node", "in") else "right", no_wrap=True)
    for each in record.ranking[:SHOWN]:
        table.add_row(each.node, _percent(each.loss), each.group, _percent(each.own_error), f"{each.share:.2%}")
    console.print(table)
    if len(record.ranking) > SHOWN:
        console.print(f"and {len(record.ranking) - SHOWN} more, in {output}", markup=False)
    for line in lines(record):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def lines(record: BisectRecord) -> list[str]:
    """What was found, in sentences."""
    damaged = [_damage(each) for each in record.ranking if each.damage]
    said = damaged[:SHOWN]
    if len(damaged) > SHOWN:
        said.append(f"and {len(damaged) - SHOWN} more like these")
    said += [f"note: {note}" for note in record.notes]
    said.append(f"judged on {len(record.pictures)} pictures ({record.origin}) against {record.reference}")
    before, found = record.kept_before, [entry for entry in record.keep if entry.node not in record.kept_before]
    said += [f"kept higher already: {name}" for name in before]
    more = " more" if before else ""
    if record.passed_before:
        return [*said, f"PASSED {record.typed} with nothing{more} kept higher: {record.worst_before}"]
    said.append(f"as it is: {record.worst_before}")
    if not found:
        return [*said, f"FAILED {record.typed}"]
    share = sum(entry.share or 0 for entry in found)
    said += [f"keep {entry.node}: {entry.reason}" for entry in found]
    count = f"{len(found)}{more} {'node' if len(found) == 1 else 'nodes'} kept higher, {share:.1%} of the multiply-adds"
    if not record.passed:
        return [*said, f"FAILED {record.typed}: {count}, more than allowed"]
    said.append(f"PASSED {record.typed} with {count}: {record.worst}")
    return [*said, f"next: {record.build}"] if record.build else said


def show_tries(outcome: Outcome, console: Console) -> None:
    """Print a row for each try, then what the last one kept."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for title in (
        "method",
        "kept",
        "worst group",
        "worst in the face",
        "chosen at",
        "judged at",
        "int8",
        "mult-adds",
        "ms",
        "",
    ):
        table.add_column(title, no_wrap=True)
    for each in outcome.tries:
        table.add_row(
            each.method,
            str(len(each.kept)),
            each.group,
            each.meaning,
            f"{each.strain:.0%}",
            "-" if each.judged is None else f"{each.judged:.0%}",
            each.convolutions,
            f"{each.macs:.1%}",
            "-" if each.latency_ms is None else f"{each.latency_ms:.3f}",
            "passes" if each.passed else "fails",
        )
    console.print(table)
    if outcome.options is not None:
        for name in outcome.tries[-1].kept:
            console.print(f"kept higher: {name}", markup=False, highlight=False)
    for note in outcome.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def _damage(each: Sensitivity) -> str:
    return f"damaged {each.node}: {each.damage}"


def _percent(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.1%}"
