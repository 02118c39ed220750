"""Whether runs of one machine agree: in ratios, as another load of the machine slows both sides of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.bench.ratios import best_torch, float32_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from face3d_trt.bench.merge import Group, Series
    from face3d_trt.bench.records import Row

LIMIT = 0.05  # ratios of two runs may differ by so much


@dataclass(frozen=True)
class Doubt:
    """A ratio that several runs measured.

    Attributes:
        row: What was compared.
        base: With what; None: nothing that ran as often, so its own time is judged.
        values: Of each run, in the order of time.
    """

    row: Row
    base: Row | None
    values: tuple[float, ...]

    @property
    def spread(self) -> float:
        """Largest over smallest, minus one."""
        return max(self.values) / min(self.values) - 1


@dataclass(frozen=True)
class Noise:
    """How well runs agree.

    Attributes:
        doubts: Every ratio that was measured more than once, the worst first.
    """

    doubts: tuple[Doubt, ...]

    @property
    def worst(self) -> Doubt | None:
        """The ratio that differs most."""
        return self.doubts[0] if self.doubts else None

    @property
    def over(self) -> tuple[Doubt, ...]:
        """Those that differ by more than the limit."""
        return tuple(doubt for doubt in self.doubts if doubt.spread > LIMIT)

    @property
    def noisy(self) -> bool:
        """Whether any does."""
        return bool(self.over)


def noise_of(group: Group) -> Noise:
    """Compare the runs of a group's rows."""
    return Noise(tuple(sorted(_doubts(group), key=lambda doubt: -doubt.spread)))


def _doubts(group: Group) -> Iterator[Doubt]:
    rows = group.rows
    times = {key: tuple(run.rate.ms for run in runs if run.rate) for key, runs in group.runs.items()}
    for row, own in zip(rows, times.values(), strict=True):
        if len(own) < 2:
            continue
        rivals = (find(rows, row.mode, row.batch, row.input) for find in (best_torch, float32_torch))
        bases = {id(rival.row): rival.row for rival in rivals if rival is not None}
        paired = {at: base for at, base in bases.items() if len(times[_key_of(group, rows, base)]) == len(own)}
        for base in paired.values():
            if base is not row:
                theirs = times[_key_of(group, rows, base)]
                yield Doubt(row, base, tuple(b / a for a, b in zip(own, theirs, strict=True)))
        if not paired:
            yield Doubt(row, None, own)


def _key_of(group: Group, rows: tuple[Row, ...], wanted: Row) -> tuple[Series, int]:
    return next(key for key, row in zip(group.runs, rows, strict=True) if row is wanted)
