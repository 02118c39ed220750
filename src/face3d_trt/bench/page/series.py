"""The rows of a group as named series, for tables and plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.bench.knee import knee, rates_of, within
from face3d_trt.bench.merge import Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.bench.merge import Group
    from face3d_trt.bench.records import Mode, Row

MODES: tuple[Mode, ...] = ("engine", "host")
MODE_TITLES = {"engine": "Engine only", "host": "Host to host"}
MODE_WORDS = {
    "engine": "Inputs lie on the device and outputs stay there; no copy between host and device is counted.",
    "host": "From numpy arrays to numpy arrays: copies to the device and back are counted.",
}


@dataclass(frozen=True)
class Named:
    """A series.

    Attributes:
        series: Which.
        name: For tables and legends; no other series of the mode has it.
        rows: In the order of batches.
    """

    series: Series
    name: str
    rows: tuple[Row, ...]

    @property
    def by_batch(self) -> dict[int, Row]:
        """Rows by their batch."""
        return {row.batch: row for row in self.rows}

    @property
    def knee(self) -> int | None:
        """The smallest batch that reaches 95 % of the best rate."""
        return knee(rates_of(self.rows))

    def within(self, limit_ms: float) -> int | None:
        """The batch for a latency limit."""
        return within(self.rows, limit_ms)


def named(group: Group) -> tuple[Named, ...]:
    """The series of a group, PyTorch first; a name is the row's label, and what tells it from others of that label."""
    lines: dict[Series, list[Row]] = {}
    for row in group.rows:
        lines.setdefault(Series.of(row), []).append(row)
    names = names_of([(series, _label(rows)) for series, rows in lines.items()])
    return tuple(Named(series, names[series], tuple(rows)) for series, rows in lines.items())


def _label(rows: Sequence[Row]) -> str:
    """Of a row that ran: one that could not even begin is called after its backend."""
    return next((row.label for row in rows if row.skipped is None), rows[0].label)


def names_of(labelled: Sequence[tuple[Series, str]]) -> dict[Series, str]:
    """Names without doubles: those that share one get their input, then their plan, as far as it tells them apart."""
    names = dict(labelled)
    for more in (lambda series: f"{series.input} input", lambda series: series.plan or series.backend):
        alike: dict[tuple[str, str], list[Series]] = {}
        for series, name in names.items():
            alike.setdefault((series.mode, name), []).append(series)
        for (_, name), those in alike.items():
            if len({more(series) for series in those}) > 1:
                names |= {series: f"{name}, {more(series)}" for series in those}
    return names


def of_mode(every: Sequence[Named], mode: Mode) -> tuple[Named, ...]:
    """The series of one mode."""
    return tuple(each for each in every if each.series.mode == mode)
