"""`face3d-trt bench`: every backend in a process of its own, every row in the file as it comes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.bench.child import Begun, Done, Failed, Job, Measured, Profiled, Started, run, skipped
from face3d_trt.bench.choose import Planned, choose
from face3d_trt.bench.machine import machine, others
from face3d_trt.bench.registry import BACKENDS
from face3d_trt.bench.results import Results, key_of
from face3d_trt.bench.spawn import Child, Ended, TimedOut, until
from face3d_trt.bench.subject import find_subject
from face3d_trt.bench.truth import find_truth
from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.errors import UsageError
from face3d_trt.files import check_output
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.bench.backend import Case
    from face3d_trt.bench.error import Truth
    from face3d_trt.bench.options import BenchOptions
    from face3d_trt.bench.records import BenchFile, Row

START_S = 300.0  # until a backend is there: imports, a CUDA context, quantization of the full network on two cores
SETUP_S = 180.0  # of a case, unless something is compiled
MEASURE_S = 180.0  # of a case beyond its pace: pictures for the error, calls of seconds on a CPU
PROFILE_S = 120.0
_RESTARTS = 3  # of a backend whose process ended at some case; the next case gets a new one


def run_bench(options: BenchOptions, report: Reporter = SILENT) -> BenchFile:
    """Measure, and write `options.json` after every row.

    Raises:
        UsageError: Nothing can be measured, or files do not belong together.
        MissingError: A backend that was asked for by name, or the GPU, is not here.
        StorageError: The file cannot be written.
    """
    begun = time.monotonic()
    deadline = None if options.budget_s is None else begun + options.budget_s
    if options.json is not None:
        check_output(options.json)
    if options.calib is not None and not options.calib.is_dir():
        raise UsageError(f"--calib {options.calib} is no folder", allowed="a folder of aligned crops")
    device = _device(options)
    subject = find_subject(options)
    results = Results.begin(options, subject, machine(device), begun, report)
    with tempfile.TemporaryDirectory(prefix="face3d-bench-") as folder:
        planned = choose(options, subject, device, Path(folder), report)
        if (working := others(device)) is not None:
            report.warn(f"{working}: figures of a busy machine vary")
        truth = find_truth(options, subject, report)
        if options.ceilings:  # first, so that a run that is cut off has them: without them no row has a bound
            results.add_roofline(subject, options, device, deadline, report)
        all_of_them = [_Measurement(each, options, truth, results, Path(folder), deadline, report) for each in planned]
        try:
            _share_out(all_of_them, deadline)
        except KeyboardInterrupt:
            if results.file.rows and options.json is not None:
                report.warn(f"{options.json} has {len(results.file.rows)} rows; --resume measures the rest")
            raise
        if any(each.left for each in all_of_them):
            report.warn(f"the {options.budget_s:.0f} s of --budget are over; --resume measures the rest")
    return results.write()


def _share_out(measurements: list[_Measurement], deadline: float | None) -> None:
    """Each backend in turn; with a deadline each has a share of what is left, and who needs more has another turn.

    A backend that needs less leaves its time to those after it. A turn is a process, which takes seconds to start; so a
    share is all that is left, divided by how many wait, and no fixed slice.
    """
    before = -1
    while (waiting := [each for each in measurements if each.left]) and before != _count(waiting):
        before = _count(waiting)
        for at, each in enumerate(waiting):
            if until(deadline) <= 0:
                return
            each.run(None if deadline is None else time.monotonic() + until(deadline) / (len(waiting) - at))


def _count(measurements: list[_Measurement]) -> int:
    return sum(len(each.left) for each in measurements)


def _device(options: BenchOptions) -> int | None:
    if options.device == "cpu":
        return None
    if options.device is None:
        return 0 if visible_gpus() else None
    return options.device


class _Measurement:
    """One backend's rows: as many processes as it takes.

    Attributes:
        left: Cases that have neither figures nor a reason why there are none.
    """

    def __init__(
        self,
        planned: Planned,
        options: BenchOptions,
        truth: Truth | None,
        results: Results,
        folder: Path,
        deadline: float | None,
        report: Reporter,
    ) -> None:
        self._planned, self._options, self._truth, self._results = planned, options, truth, results
        self._folder, self._deadline, self._report = folder, deadline, report
        plan = planned.source.plan
        self._what = planned.backend if planned.backend != "trt" or plan is None else f"trt {plan.name}"
        self._started: Started | None = None
        self._current: Case | None = None
        self._share: float | None = None
        self._ended = 0
        self.left = [case for case in planned.cases if not results.has(self._key(case))]
        if len(self.left) < len(planned.cases):
            report.stage(f"{self._what}: {len(planned.cases) - len(self.left)} rows are in the file already")

    def run(self, share: float | None) -> None:
        """Measure what is left.

        Args:
            share: Of time.monotonic; after it no case is begun but the first of this turn.
        """
        self._share = share
        while self.left and until(self._deadline) > 0:
            if self._ended > _RESTARTS:
                self._give_up("its process ended too often")
            elif self._attempt():
                return
            self._ended += 1

    def _attempt(self) -> bool:
        """One process; whether it came to its own end."""
        self._started = self._current = None
        with Child(run, self._job()) as child:
            seconds, phase = START_S, "starting"
            while True:
                try:
                    message = child.receive(min(seconds, until(self._deadline)))
                except TimedOut:
                    if until(self._deadline) <= 0:
                        return True
                    child.end()
                    self._lost(self._too_slow(phase, seconds))
                    return False
                except Ended as end:
                    self._lost(f"{end}{self._last_words()}")
                    return False
                if isinstance(message, Failed):
                    self._cannot(message)
                    return True
                if isinstance(message, Done):
                    return True
                if isinstance(message, Started):
                    self._started = message
                    self._report.stage(f"{self._what}: {message.label}")
                elif isinstance(message, Begun):
                    self._current = self.left[0]
                    phase = "measuring" if message.ready else "compiling" if self._compiles else "setting up"
                    seconds = self._limit(phase)
                elif isinstance(message, Measured):
                    self._add(message.row)
                    self.left.pop(0)
                    self._current = None
                    phase, seconds = "profiling", PROFILE_S
                elif isinstance(message, Profiled):
                    self._results.add_layers(message.layers)

    def _limit(self, phase: str) -> float:
        if phase == "measuring":
            return MEASURE_S + 5 * self._options.pace.seconds
        return self._options.compile_limit_s if phase == "compiling" else SETUP_S

    def _lost(self, reason: str) -> None:
        """The case at which a process ended is lost; before it had started, all are."""
        if self._started is None:
            self._give_up(reason)
        elif self._current is not None:
            self._add(self._skipped(self.left.pop(0), reason))

    def _give_up(self, reason: str) -> None:
        while self.left:
            self._add(self._skipped(self.left.pop(0), reason))

    def _cannot(self, message: Failed) -> None:
        """The backend cannot be had: an error where it was asked for by name and something is to be installed."""
        if message.missing is not None:
            if self._planned.named:
                raise message.missing
            self._report.warn(f"{self._what} is left out: {message.reason}")
            self.left = []
        self._give_up(message.reason)

    def _too_slow(self, phase: str, seconds: float) -> str:
        words = {"compiling": "compilation took", "measuring": "a measurement took", "starting": "starting took"}
        return f"{words.get(phase, f'{phase} took')} more than {seconds:.0f} s"

    def _last_words(self) -> str:
        """The last line of the process's log, which often has the reason."""
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return next((f": {line.strip()[:200]}" for line in reversed(lines) if line.strip()), "")

    def _job(self) -> Job:
        return Job(
            backend=self._planned.backend,
            source=self._planned.source,
            cases=tuple(self.left),
            pace=self._options.pace,
            truth=self._truth,
            layers=tuple(self._layer_cases()),
            log=str(self._log),
            deadline=self._deadline,
            share=self._share,
            module=self._planned.module,
        )

    def _layer_cases(self) -> Iterator[Case]:
        """The smallest batch and the largest, where the file lacks them."""
        plan = self._planned.source.plan
        if self._planned.backend == "trt" and self._options.layers and plan is not None:
            resident = sorted(
                (case for case in self._planned.cases if case.mode == "engine"), key=lambda each: each.batch
            )
            for case in dict.fromkeys(resident[:1] + resident[-1:]):
                if not self._results.has_layers(plan.name, case.batch):
                    yield case

    @property
    def _log(self) -> Path:
        return self._folder / f"{self._what.replace(' ', '-')}.log"

    @property
    def _compiles(self) -> bool:
        return BACKENDS[self._planned.backend].compiles

    def _key(self, case: Case) -> tuple[object, ...]:
        return key_of(self._skipped(case, ""))

    def _skipped(self, case: Case, reason: str) -> Row:
        file = self._planned.source.plan or self._planned.source.onnx
        plan = None if self._planned.backend.startswith("torch-") or file is None else file.name
        known = self._started or Started(self._planned.backend, BACKENDS[self._planned.backend].arithmetic, plan)
        return skipped(known, self._planned.backend, case, reason)

    def _add(self, row: Row) -> None:
        self._results.add(row)
        self._report.stage(f"  {line(row)}")


def line(row: Row) -> str:
    """A row for whoever watches."""
    what = f"batch {row.batch:<4}" + (" host to host" if row.mode == "host" else "")
    if row.rate is None or row.latency is None:
        return f"{what}  no figures: {row.skipped}"
    error = "" if row.error is None else f", error {row.error:.2%}"
    calm = "" if row.rate.settled else f", not settled ({row.rate.spread:.0%})"
    return f"{what}  p50 {row.latency.p50:.3f} ms, {row.rate.images_per_second:,.0f} images/s{error}{calm}"


def check_any(file: BenchFile) -> None:
    """Raise where a run has no figure at all.

    Raises:
        UsageError: It has none.
    """
    if not any(row.rate for row in file.rows):
        reasons = dict.fromkeys(row.skipped for row in file.rows if row.skipped)
        raise UsageError("no backend gave a figure: " + "; ".join(map(str, reasons)), run="face3d-trt doctor")
