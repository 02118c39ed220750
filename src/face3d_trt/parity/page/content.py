"""What the page says of one plan, in the order in which somebody who decides wants to know it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from face3d_trt.parity.exhibits import judged
from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.meaning_table import exact_graph, explanation
from face3d_trt.parity.page.facts import Fact, facts_of
from face3d_trt.parity.page.gallery import Gallery, gallery_of
from face3d_trt.parity.page.groups import GroupTable, group_table
from face3d_trt.parity.page.spread import Panel, panels
from face3d_trt.parity.page.words import percent, shown
from face3d_trt.parity.strain import failure_strain, meaning_strain, row_strain
from face3d_trt.parity.table import condensed, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from face3d_trt.parity.compare import Comparison
    from face3d_trt.parity.page.sensitivity import Sensitivity
    from face3d_trt.parity.verdict import Failure, MeaningRow, Verdict

HEADLINES = ("shape_mean", "vertex_mean", "landmark_mean", "rotation", "mesh_mean")
HEADLINES_SHOWN = 4
DECIDED_ALONE = ("integrity", "error", "non-finite")  # failures beside which no figure matters


@dataclass(frozen=True)
class Headline:
    """A figure of the verdict's card: the median over the pictures."""

    name: str
    value: str
    unit: str
    limit: str


@dataclass(frozen=True)
class Cell:
    """What was found, and the limit; `over` where the limit is not kept."""

    found: str
    limit: str
    over: bool


@dataclass(frozen=True)
class MeaningLine:
    """One measure of a table."""

    label: str
    cells: tuple[Cell, ...]  # median, 95 %, worst
    used: float | None  # of the limits; None: there are none
    image: str
    gated: bool
    passed: bool


@dataclass(frozen=True)
class MeaningTable:
    """One candidate: its lines, or one sentence in the place of a table of zeros."""

    title: str
    lines: tuple[MeaningLine, ...]
    sentence: str
    note: str


@dataclass(frozen=True)
class Plan:
    """Everything about one plan; the template shows it from top to bottom."""

    anchor: str
    name: str
    verdict: Verdict
    about: str
    decision: str
    headlines: tuple[Headline, ...]
    failures: tuple[str, ...]
    tables: tuple[MeaningTable, ...]
    panels: tuple[Panel, ...]
    gallery: Gallery
    groups: tuple[GroupTable, ...]
    sensitivity: Sensitivity | None
    facts: tuple[Fact, ...]

    @property
    def subject(self) -> str:
        """What the verdict is about."""
        name = judged(self.verdict.rows)
        return f"judged by {self.verdict.candidates[name]}" if name is not None else "nothing could be compared"


def plan_of(comparison: Comparison, number_of_plan: int, sensitivity: Sensitivity | None) -> Plan:
    """What to show of a comparison.

    Args:
        comparison: The verdict and its worst pictures.
        number_of_plan: From 1, for links.
        sensitivity: The layers, where `bisect` measured them.
    """
    verdict = comparison.verdict
    name = judged(verdict.rows)
    own = [row for row in verdict.meaning if row.candidate == name]
    return Plan(
        anchor=f"plan-{number_of_plan}",
        name=PurePath(verdict.plan).name,
        verdict=verdict,
        about=_about(verdict),
        decision=_decision(verdict, name, own),
        headlines=tuple(_headlines(own)),
        failures=tuple(condensed(verdict.failures)),
        tables=tuple(_tables(verdict)),
        panels=panels(own, [face for face in verdict.faces if face.candidate == name]),
        gallery=gallery_of(comparison),
        groups=tuple(
            group_table(title, rows)
            for candidate, title in reversed(verdict.candidates.items())
            if (rows := [row for row in verdict.rows if row.candidate == candidate])
        ),
        sensitivity=sensitivity,
        facts=facts_of(verdict),
    )


def _about(verdict: Verdict) -> str:
    """What the verdict is said of."""
    if verdict.passed:
        return f"About {summary(verdict).removeprefix(f'PASSED {verdict.plan}: ')}."
    count = len(verdict.failures)
    return "1 failure." if count == 1 else f"{count} failures; the one furthest from its limit is named here."


def _decision(verdict: Verdict, name: str | None, own: Sequence[MeaningRow]) -> str:
    """The row that decided: the worst failure, or the row that is closest to its limit."""
    if verdict.failures:
        return f"Decided by {_deciding(verdict.failures).text}."
    faces = [(meaning_strain(row), f"{MEASURES[row.measure].title} (worst in {row.worst_image})") for row in own]
    rows = [(row_strain(row), f"{row.label} (batch {row.batch})") for row in verdict.rows if row.candidate == name]
    used = [(strain, what) for strain, what in (*faces, *rows) if strain is not None]
    if not used:
        return "Nothing decided: the figures are shown and not gated."
    strain, what = max(used)
    return f"Closest to its limit: {what}, {percent(strain)} of what is allowed."


def _deciding(failures: Sequence[Failure]) -> Failure:
    first = next((failure for failure in failures if failure.kind in DECIDED_ALONE), None)
    return first or max(failures, key=failure_strain)


def _headlines(rows: Sequence[MeaningRow]) -> Iterator[Headline]:
    by_name = {row.measure: row for row in rows}
    for name in [name for name in HEADLINES if name in by_name][:HEADLINES_SHOWN]:
        row = by_name[name]
        limit = f"{row.allowed_median:g}" if row.gated and row.allowed_median is not None else ""
        yield Headline(MEASURES[name].title, shown(row.median, name), row.unit, limit)


def _tables(verdict: Verdict) -> Iterator[MeaningTable]:
    """The judged candidate first: it is what the reader came for."""
    for name, title in reversed(verdict.candidates.items()):
        rows = [row for row in verdict.meaning if row.candidate == name]
        if not rows:
            continue
        exact = rows[0].precision == "fp32" != verdict.precision and all(row.passed for row in rows)
        yield MeaningTable(
            title=title,
            lines=() if exact else tuple(map(_line, rows)),
            sentence=exact_graph(title, rows) if exact else "",
            note=explanation(rows, verdict.head_mm),
        )


def _line(row: MeaningRow) -> MeaningLine:
    pairs = (
        (row.median, row.allowed_median),
        (row.p95, row.allowed_p95),
        (row.worst, row.allowed_worst),
    )
    return MeaningLine(
        label=MEASURES[row.measure].label,
        cells=tuple(_cell(row, value, allowed if row.gated else None) for value, allowed in pairs),
        used=meaning_strain(row),
        image=row.worst_image,
        gated=row.gated,
        passed=row.passed,
    )


def _cell(row: MeaningRow, value: float, allowed: float | None) -> Cell:
    sign = 1 if row.better == "low" else -1
    over = allowed is not None and not sign * value <= sign * allowed
    return Cell(shown(value, row.measure), "" if allowed is None else f"{allowed:g}", over)
