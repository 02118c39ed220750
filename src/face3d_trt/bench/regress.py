"""`bench compare`: did a ratio get worse between two runs?

Each row is held against a baseline of its own file, at the same mode and batch: what slows the whole machine cancels.
The baseline's own ratio is 1, so a change that slows everything alike is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.bench.machines import machine_facts, same_machine
from face3d_trt.bench.merge import Series
from face3d_trt.errors import UsageError

if TYPE_CHECKING:
    from face3d_trt.bench.records import BenchFile, Mode, Row

LIMIT = 0.05
_BASELINES = ("torch-fp32", "ort-fp32", "torch", "ort", "trt")  # the first that both files have
_MEASURES: Mapping[str, Callable[[Row], float | None]] = {
    "time": lambda row: row.rate.ms if row.rate else None,
    "p50": lambda row: row.latency.p50 if row.latency else None,
    "GPU memory": lambda row: row.memory.process,
}

Key = tuple[Series, int, int, int, str]  # series, batch, height, width, outputs


@dataclass(frozen=True)
class Change:
    """One ratio in both runs: how much of the baseline a row takes; less is better.

    Attributes:
        row: Of the new run.
        base: Of the new run.
        measure: `time` (back to back), `p50` (single calls) or `GPU memory`.
        old: Row over baseline in the old run.
        new: Likewise.
    """

    row: Row
    base: Row
    measure: str
    old: float
    new: float

    @property
    def worse(self) -> float:
        """By which share the ratio got worse; below 0: better."""
        return self.new / self.old - 1


@dataclass(frozen=True)
class Regression:
    """What two runs say.

    Attributes:
        changes: Every ratio that both have, the worst first.
        lost: Rows that had figures in the old run and were skipped in the new one, and why.
        absent: Rows of the old run that the new one did not try.
        added: Rows that only the new run has.
        alone: Rows without a baseline in both files: nothing can be said of them.
        notes: What else differs.
        limit: The share by which a ratio may get worse.
    """

    changes: tuple[Change, ...]
    lost: tuple[tuple[Row, str], ...]
    absent: tuple[Row, ...]
    added: tuple[Row, ...]
    alone: tuple[Row, ...]
    notes: tuple[str, ...]
    limit: float

    @property
    def worsened(self) -> tuple[Change, ...]:
        """Those beyond the limit."""
        return tuple(change for change in self.changes if change.worse > self.limit)

    @property
    def passed(self) -> bool:
        """Whether something was compared, no ratio is beyond the limit, and no row has lost its figures."""
        return bool(self.changes) and not self.worsened and not self.lost


def compare_runs(old: BenchFile, new: BenchFile, limit: float = LIMIT) -> Regression:
    """Compare two runs.

    Args:
        old: What was measured before.
        new: What is judged.
        limit: The share by which a ratio may get worse: 0.05.

    Raises:
        UsageError: They are of different machines, models, sizes or outputs.
    """
    _check_alike(old, new)
    before, after = ({_key(row): row for row in file.rows} for file in (old, new))
    common = {key: (row, after[key]) for key, row in before.items() if key in after}
    timed = {key: pair for key, pair in common.items() if pair[0].rate and pair[1].rate}
    changes: list[Change] = []
    alone = []
    for key, pair in timed.items():
        base = _baseline(key, timed)
        if base is None:
            alone.append(pair[1])
        elif base != key:
            changes += _changes(pair, timed[base])
    return Regression(
        changes=tuple(sorted(changes, key=lambda change: -change.worse)),
        lost=tuple(_lost(before, after)),
        absent=tuple(row for key, row in before.items() if row.rate and key not in after),
        added=tuple(row for key, row in after.items() if row.rate and not (key in before and before[key].rate)),
        alone=tuple(alone),
        notes=tuple(_notes(old, new)),
        limit=limit,
    )


def _check_alike(old: BenchFile, new: BenchFile) -> None:
    def refuse(what: str, one: str, other: str) -> UsageError:
        return UsageError(
            f"the runs are of different {what}: {one} and {other}",
            allowed="two runs of one machine, one model, one size and the same outputs",
            run="face3d-trt bench report OLD.json NEW.json -o both.html    # shows them side by side",
        )

    if not same_machine(old.machine, new.machine, any_driver=True):
        raise refuse("machines", machine_facts(old.machine), machine_facts(new.machine))
    if old.model_sha256 and new.model_sha256 and old.model_sha256 != new.model_sha256:
        names = (f"{each.model} ({each.model_sha256[:12]})" for each in (old, new) if each.model_sha256)
        raise refuse("models", *names)
    if not (old.model_sha256 and new.model_sha256) and old.model != new.model:
        raise refuse("models", old.model, new.model)
    for what, of in (("sizes", _size), ("outputs", lambda row: str(row.outputs))):
        one, other = ({of(row) for row in file.rows} for file in (old, new))
        if one != other:
            raise refuse(what, ", ".join(sorted(one)) or "none", ", ".join(sorted(other)) or "none")


def _size(row: Row) -> str:
    return f"{row.height}x{row.width}"


def _key(row: Row) -> Key:
    return Series.of(row), row.batch, row.height, row.width, row.outputs


def _baseline(key: Key, timed: Mapping[Key, object]) -> Key | None:
    """The baseline of a row: the first of `_BASELINES` that both runs have at its mode, batch and size."""
    series, *place = key
    mode: Mode = series.mode
    here = sorted(other for other in timed if other[0].mode == mode and list(other[1:]) == place)
    for name in _BASELINES:
        found = [each for each in here if each[0].backend == name or each[0].backend.startswith(f"{name}-")]
        if name == "trt":
            found = [each for each in here if each[0].backend.startswith(name)]
        if found and len(here) > 1:
            return found[0]
    return None


def _changes(row: tuple[Row, Row], base: tuple[Row, Row]) -> Iterator[Change]:
    for measure, of in _MEASURES.items():
        values = [(of(each), of(other)) for each, other in zip(row, base, strict=True)]
        if all(mine and theirs for mine, theirs in values):
            old, new = (float(mine or 0) / float(theirs or 1) for mine, theirs in values)
            yield Change(row[1], base[1], measure, old, new)


def _lost(before: Mapping[Key, Row], after: Mapping[Key, Row]) -> Iterator[tuple[Row, str]]:
    for key, row in before.items():
        if row.rate is not None and key in after and after[key].rate is None:
            yield row, after[key].skipped or "no figures"


def _notes(old: BenchFile, new: BenchFile) -> Iterator[str]:
    if old.machine.driver != new.machine.driver:
        yield f"driver {old.machine.driver or 'unknown'} and {new.machine.driver or 'unknown'}"
    packages = old.machine.packages, new.machine.packages
    for name in sorted(packages[0].keys() & packages[1].keys()):
        if packages[0][name] != packages[1][name]:
            yield f"{name} {packages[0][name]} and {packages[1][name]}"
