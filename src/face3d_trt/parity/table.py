"""A verdict for people: what passed, against what, at which batches, on how many pictures. 80 columns are enough."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from face3d_trt.names import MM_PER_UNIT, TEXTURE, VERTEX
from face3d_trt.parity.meaning_table import exact_graph, explanation, meaning_table, worst_images

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    from face3d_trt.parity.verdict import Failure, Row, Verdict

FAILURES_SHOWN = 12
NAMES_SHOWN = 5
UNITS = {VERTEX: " (mm)", TEXTURE: " (RGB)"}  # of the mesh; "texture" alone is a group of coefficients


def show(verdict: Verdict, console: Console) -> None:
    """Print tables, notes, failures and the result of one verdict."""

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    say(f"\n{verdict.plan}: {verdict.precision} against float32 PyTorch ({verdict.model})", "bold")
    if verdict.reference.file is not None:
        say(f"reference: {verdict.reference.file}, by PyTorch {verdict.reference.torch}, {verdict.reference.created}")
    say(f"pictures: {len(verdict.pictures)} from {verdict.origin}{_left_out(verdict.skipped)}")
    say(f"batches:  {'; '.join(verdict.batches)}")
    for name, title in verdict.candidates.items():
        meaning = [row for row in verdict.meaning if row.candidate == name]
        if meaning and meaning[0].precision == "fp32" != verdict.precision and all(row.passed for row in meaning):
            say(exact_graph(title, meaning))
        elif meaning:
            console.print(meaning_table(title, meaning))
            say(f"worst pictures: {worst_images(meaning)}", "dim")
    if verdict.meaning:
        say(explanation(verdict.meaning, verdict.head_mm), "dim")
    for name, title in verdict.candidates.items():
        rows = [row for row in verdict.rows if row.candidate == name]
        if rows:
            console.print(_table(title, rows))
    say("Worst batch shown. relative: norm of error / norm of variation between pictures", "dim")
    for note in verdict.notes:
        say(f"note: {note}")
    for failure in condensed(verdict.failures):
        say(f"failed: {failure}", "red")
    say(summary(verdict), "bold green" if verdict.passed else "bold red")


def summary(verdict: Verdict) -> str:
    """One line: passed or failed, and what that is said of."""
    if not verdict.passed:
        count = len(verdict.failures)
        return f"FAILED {verdict.plan}: {count} {'failure' if count == 1 else 'failures'}"
    graphs = len(verdict.candidates) - 1
    came_from = ("", " and one of the graphs it came from", " and the graphs it came from")
    what = f"the plan{came_from[graphs]}" if verdict.engine_ran else "the typed graph (the plan was not run)"
    shown = "; int8 figures are shown, not gated" if any(not row.gated for row in verdict.rows) else ""
    return f"PASSED {verdict.plan}: {what}{shown}"


def _left_out(skipped: Sequence[str]) -> str:
    if not skipped:
        return ""
    names = ", ".join(entry.partition(": ")[0] for entry in skipped[:NAMES_SHOWN])
    return f"; {len(skipped)} left out: {names}{' …' if len(skipped) > NAMES_SHOWN else ''}"


def _table(title: str, rows: Sequence[Row]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("", no_wrap=True)
    for name in ("max error", "mean error", "relative", "allowed", "cosine", "batch"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for label in dict.fromkeys((row.output, row.group) for row in rows):
        table.add_row(*_cells([row for row in rows if (row.output, row.group) == label]))
    return table


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    """One line for an output or group: the worst over the batches."""
    worst = max(rows, key=lambda row: math.inf if math.isnan(row.relative) else row.relative)
    unit = MM_PER_UNIT if worst.output == VERTEX else 1.0
    name = f"  {worst.group}" if worst.group else worst.output
    passed = "ok" if worst.gated else "-"
    mean = sum(row.mean_abs * row.rows for row in rows) / sum(row.rows for row in rows)
    return (
        name + UNITS.get(worst.output, ""),
        f"{max(row.max_abs for row in rows) * unit:.2e}",
        f"{mean * unit:.2e}",
        _percent(worst.relative),
        f"{worst.allowed_relative * 100:g} %" if worst.gated else "-",
        _cosine(min((row.cosine for row in rows), key=lambda cosine: -math.inf if math.isnan(cosine) else cosine)),
        str(worst.batch),
        passed if all(row.passed for row in rows) else "FAIL",
    )


def _cosine(value: float) -> str:
    return f"{value:.6f}" if value >= 0 else f"{value:.5f}"  # as wide: the column must not push the verdict out


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %" if share < 100 else f"{share:.1e} x"


def condensed(failures: Sequence[Failure]) -> Iterator[str]:
    """The first failure of each output or group and candidate, with the other batches it failed at."""
    grouped: dict[tuple[str | None, ...], list[Failure]] = {}
    for failure in failures:
        key = (failure.text,) if failure.kind == "integrity" else (failure.candidate, failure.output, failure.group)
        grouped.setdefault(key, []).append(failure)
    for shown, same in enumerate(grouped.values()):
        if shown == FAILURES_SHOWN:
            yield f"and {len(grouped) - shown} more outputs and groups (all of them in --json)"
            return
        others = dict.fromkeys(str(failure.batch) for failure in same[1:] if failure.batch != same[0].batch)
        yield same[0].text + (f"; also at batch {', '.join(others)}" if others else "")
