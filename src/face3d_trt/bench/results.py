"""The file of a run: written whole after every row, so that a run that is cut off leaves what it has."""

from __future__ import annotations

import datetime
import importlib.util
import time
from typing import TYPE_CHECKING

from face3d_trt.bench.records import BenchFile, Ceilings, LayerProfile, Machine, Row, Work, read_run
from face3d_trt.bench.spawn import Ended, TimedOut, answer_of, until
from face3d_trt.errors import Face3DError, UsageError
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from face3d_trt.bench.options import BenchOptions
    from face3d_trt.bench.subject import Subject

_CEILINGS_S = 90.0
_COUNTING_S = 60.0


def key_of(row: Row) -> tuple[object, ...]:
    """What makes two rows the same measurement."""
    return (row.backend, row.plan, row.mode, row.outputs, row.input, row.batch, row.height, row.width)


class Results:
    """What a run has so far.

    Args:
        file: To begin with.
        path: Where it is written; None: nowhere.
        begun: Of time.monotonic; less what earlier runs of the same file took.

    Attributes:
        file: As it is written.
    """

    def __init__(self, file: BenchFile, path: Path | None, begun: float) -> None:
        self.file, self._path, self._begun = file, path, begun

    @classmethod
    def begin(
        cls, options: BenchOptions, subject: Subject, here: Machine, begun: float, report: Reporter = SILENT
    ) -> Results:
        """A new file, or with --resume the one that is there.

        Raises:
            UsageError: The one that is there is of another machine or model, or is no such file.
        """
        fresh = BenchFile(
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            command=options.command,
            machine=here,
            model=subject.name,
            model_sha256=subject.sha256,
            rows=(),
            seconds=0.0,
        )
        if not options.resume or options.json is None or not options.json.is_file():
            return cls(fresh, options.json, begun)
        former = read_run(options.json)
        _same(former, fresh, options.json)
        rows = tuple(row for row in former.rows if row.rate is not None)
        report.stage(f"{options.json} has {len(rows)} rows already")
        kept = former.model_copy(update={"rows": rows, "command": fresh.command, "machine": here})
        return cls(kept, options.json, begun - former.seconds)

    def has(self, key: tuple[object, ...]) -> bool:
        """Whether there are figures for it."""
        return any(row.rate is not None and key_of(row) == key for row in self.file.rows)

    def has_layers(self, plan: str | None, batch: int) -> bool:
        """Whether the layers of a plan are there."""
        return any((each.plan, each.batch) == (plan, batch) for each in self.file.layers)

    def add(self, row: Row) -> None:
        """Take a row in, and write."""
        self._change(rows=(*self.file.rows, row))

    def add_layers(self, profile: LayerProfile) -> None:
        """Take the layers of a plan in, and write."""
        others = [each for each in self.file.layers if (each.plan, each.batch) != (profile.plan, profile.batch)]
        self._change(layers=(*others, profile))

    def add_roofline(
        self, subject: Subject, options: BenchOptions, device: int | None, deadline: float | None, report: Reporter
    ) -> None:
        """What the machine reaches at its best, and what a picture costs by count, where that can be found out here."""
        if self.file.ceilings == Ceilings() and importlib.util.find_spec("torch") is not None:
            report.stage("ceilings: matrix products, memory and copies at their best")
            found = _asked(_ceilings, device, seconds=min(_CEILINGS_S, until(deadline)), report=report)
            self._change(ceilings=found or Ceilings())
        if self.file.work is None and (source := _countable(subject, options.outputs)) is not None:
            arguments = (*source, options.height, options.width)
            found = _asked(*arguments, seconds=min(_COUNTING_S, until(deadline)), report=report)
            self._change(work=found)

    def write(self) -> BenchFile:
        """Write, and give what was written."""
        self._change()
        return self.file

    def _change(self, **fields: object) -> None:
        seconds = round(time.monotonic() - self._begun, 1)
        self.file = self.file.model_copy(update={**fields, "seconds": seconds})
        if self._path is not None:
            self.file.write(self._path)


def _ceilings(device: int | None) -> Ceilings:
    from face3d_trt.bench.ceilings import measure_ceilings

    return measure_ceilings(device)


def _countable(subject: Subject, outputs: str) -> tuple[Callable[[Path, int, int], Work], Path] | None:
    """What counts the work, and of which file: the graph, else the checkpoint, whose network has no mesh."""
    if subject.onnx is not None and importlib.util.find_spec("onnx") is not None:
        return _work, subject.onnx
    if outputs == "coeffs" and subject.directory is not None and importlib.util.find_spec("torch") is not None:
        return _work_of_checkpoint, subject.directory
    return None


def _work(onnx: Path, height: int, width: int) -> Work:
    from face3d_trt.bench.work import count_file

    return count_file(onnx, height, width)


def _work_of_checkpoint(directory: Path, height: int, width: int) -> Work:
    from face3d_trt.bench.work import count_network
    from face3d_trt.model.load import CHECKPOINT, read_network
    from face3d_trt.model.network import width_of

    return count_network(width_of(read_network(directory / CHECKPOINT)), height, width)


def _asked(what: object, *arguments: object, seconds: float, report: Reporter) -> object:
    """In a process of its own; None, with a warning, where it does not succeed."""
    if seconds <= 0:
        return None
    try:
        return answer_of(seconds, what, *arguments)  # type: ignore[arg-type]
    except TimedOut:
        report.warn(f"the roofline is incomplete: no answer in {seconds:.0f} s")
    except (Ended, Face3DError, RuntimeError, ValueError) as error:
        report.warn(f"the roofline is incomplete: {' '.join(str(error).split())[:200]}")
    return None


def _same(former: BenchFile, fresh: BenchFile, path: Path) -> None:
    for what, old, new in (
        ("another model", former.model_sha256, fresh.model_sha256),
        ("another GPU", former.machine.gpu, fresh.machine.gpu),
        ("another CPU", former.machine.cpu, fresh.machine.cpu),
        ("other packages", former.machine.packages, fresh.machine.packages),
    ):
        if old != new:
            raise UsageError(f"{path} is of {what}: {old}, and here {new}", allowed="another --json, or no --resume")
