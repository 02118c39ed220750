"""`build --int8 --until-passes`: one calibration after the other, then nodes kept higher, until the gate holds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.bisect.files import graphs_of
from face3d_trt.bisect.run import bisect
from face3d_trt.engine.build import build_engine
from face3d_trt.engine.typed import next_typed
from face3d_trt.errors import UsageError
from face3d_trt.files import check_output, write_together
from face3d_trt.graph.info import read_info
from face3d_trt.graph.int8 import METHODS, Method
from face3d_trt.graph.precision import record_path, typed_graph
from face3d_trt.records import TypedRecord
from face3d_trt.report import SILENT, Once, Reporter

if TYPE_CHECKING:
    from face3d_trt.engine.flavour import Flavour, Takes
    from face3d_trt.engine.options import BuildOptions
    from face3d_trt.parity.judging import Judge
    from face3d_trt.records import BisectRecord

MOST = 12  # nodes kept higher; of the 71 that ModelOpt quantizes in a ResNet50
_WORTH = 1.02  # an engine that is faster by less than this is not faster: runs differ by as much


@dataclass(frozen=True)
class Until:
    """How far to go.

    Args:
        most: The most nodes that may be kept higher.
        images: Pictures that judge; None: the package's samples, which calibrate nothing.
        model: Directory or ModelScope id; None: the one that was exported.
        limits: A file like `limits.json`; None: the package's.
    """

    most: int = MOST
    images: Path | None = None
    model: str | None = None
    limits: Path | None = None


@dataclass(frozen=True)
class Try:
    """One typed graph and what the gate said of it.

    Attributes:
        method: Calibration method.
        kept: Nodes that it keeps higher by the ranking.
        passed: Whether the gate holds.
        strain: The largest share of a limit that is used; above 1 it does not hold.
        group: The coefficient group that is nearest to its limit, and its error.
        meaning: Likewise of the measures in mm, px and so on.
        convolutions: `53 of 60`, that compute in int8.
        macs: Share of the multiply-adds in int8.
        latency_ms: Of the engine's layers, together; None: not measured here.
    """

    method: Method
    kept: tuple[str, ...]
    passed: bool
    strain: float
    group: str
    meaning: str
    convolutions: str
    macs: float
    latency_ms: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        tries: In their order.
        options: Those of the winning try, with its list of nodes to keep; None: none passed.
        fp16_ms: Of the fp16 engine's layers, together; None: not measured here.
        notes: What else the reader should know.
    """

    tries: tuple[Try, ...]
    options: BuildOptions | None
    fp16_ms: float | None = None
    notes: tuple[str, ...] = ()


def until_passes(
    options: BuildOptions,
    takes: Takes,
    until: Until = Until(),
    flavour: Flavour | None = None,
    report: Reporter = SILENT,
) -> Outcome:
    """Find a typed int8 graph that passes, and leave it, and the list of nodes that it keeps, where a build finds them.

    Every calibration method is tried as it is, until one passes. If none does, the best of them gets nodes kept higher
    by its ranking, then the next best. Where none passes within `until.most` nodes, nothing is left.

    Args:
        options: Of the build; `method` and `keep` are found.
        takes: The kind of graph that is made.
        until: How far to go.
        flavour: Where it has a GPU, an engine is built and timed for each try.
        report: Hears what is tried.

    Raises:
        UsageError: Not int8, or a list is given already.
        MissingError: There is no PyTorch here to judge against.
        ModelError: The model is not where it was.
    """
    if options.precision != "int8" or options.from_typed is not None or options.keep is not None:
        raise UsageError(
            "--until-passes looks for an int8 graph that passes, from the float32 graph, with a list of its own",
            allowed="--int8 --calib DIR --until-passes, without --typed, --keep and --calib-method",
            run="face3d-trt build --int8 --calib calibration/ --until-passes",
        )
    from face3d_trt.engine.options import check_typed
    from face3d_trt.parity.judging import JudgeOptions, find_judge

    check_typed(options, takes, report)
    next_typed(options)  # refuses a name that another plan needs
    check_output(_list_path(options))
    info = read_info(options.onnx)
    report = Once(report)
    asked = JudgeOptions(info, options.onnx, "int8", until.images, until.model, until.limits)
    judge = find_judge(asked, report)
    with tempfile.TemporaryDirectory(prefix=f".{options.plan.stem}.", dir=options.plan.parent) as name:
        search = _Search(options, takes, until, flavour, judge, Path(name), report)
        return search.run()


@dataclass(frozen=True)
class _Search:
    options: BuildOptions
    takes: Takes
    until: Until
    flavour: Flavour | None
    judge: Judge
    folder: Path
    report: Reporter

    def run(self) -> Outcome:
        self._seed()
        tries: list[Try] = []
        for method in METHODS:
            tries.append(self._plain(method))
            if tries[-1].passed:
                return self._won(tries, None)
        for plain in sorted(tries, key=lambda each: each.strain):
            record = self._ranked(plain.method)
            tries.append(self._kept(plain.method, record))
            if tries[-1].passed:
                return self._won(tries, record)
        return Outcome(tuple(tries), None, notes=(self._on(),))

    def _seed(self) -> None:
        """Let a typed graph of an earlier build be reused where it is one of those that are tried."""
        for path in (self.options.typed, record_path(self.options.typed)):
            if path.is_file():
                shutil.copy(path, self.folder / path.name.replace(self.options.typed.name, "earlier.onnx"))

    def _typed(self, method: Method) -> Path:
        return self.folder / f"{method}.int8.onnx"

    def _plain(self, method: Method) -> Try:
        asked = replace(self.options, method=method).precision_options(self.takes)
        record = typed_graph(self.options.onnx, self._typed(method), asked, self.report)
        return self._try(method, (), self._typed(method), record)

    def _ranked(self, method: Method) -> BisectRecord:
        graphs = graphs_of(self.options.onnx, self._typed(method), "int8")
        state = self.options.plan.with_name(f".{self.options.plan.stem}.{method}.state")
        return bisect(graphs, self.judge, state, self.until.most, self.report)

    def _kept(self, method: Method, found: BisectRecord) -> Try:
        path, names = self.folder / f"{method}.keep.json", tuple(entry.node for entry in found.keep)
        typed = self.folder / f"{method}.kept.int8.onnx"
        if not names:  # no list helps
            return self._try(method, (), self._typed(method), TypedRecord.read(record_path(self._typed(method))))
        found.write(path)
        asked = replace(self.options, method=method, keep=path).precision_options(self.takes)
        return self._try(method, names, typed, typed_graph(self.options.onnx, typed, asked, self.report))

    def _try(self, method: Method, names: tuple[str, ...], typed: Path, record: TypedRecord) -> Try:
        from face3d_trt.graph.counts import operations, tally
        from face3d_trt.graph.info import read_graph

        graph = read_graph(typed)
        judged = self.judge.graph(graph, typed)
        made = Try(
            method,
            names,
            judged.passed and len(names) <= self.until.most,
            judged.strain,
            judged.worst_group,
            judged.worst_meaning,
            tally(operations(graph)).share("int8").partition(" conv")[0],
            record.int8_macs,
            self._latency(typed),
        )
        said = "passes" if made.passed else "does not pass"
        self.report.stage(f"tried      {method}, {len(names)} nodes kept higher: {said}: {judged.worst}")
        return made

    def _won(self, tries: list[Try], found: BisectRecord | None) -> Outcome:
        """Put the typed graph, and the list of its nodes, where the build will find them."""
        method, options = tries[-1].method, self.options
        typed = self._typed(method)
        place = next_typed(options)
        files = [(place, typed.read_bytes()), (record_path(place), record_path(typed).read_bytes())]
        final = replace(options, method=method)
        if found is not None:
            final = replace(final, keep=_list_path(options))
            named = found.model_copy(update={"typed": str(options.typed), "onnx": str(options.onnx)})
            write_together([(_list_path(options), named.to_json()), *files])
        else:
            write_together(files)
        fp16 = self._fp16()
        return Outcome(tuple(tries), final, fp16, (self._on(), *_faster(tries[-1].latency_ms, fp16)))

    def _on(self) -> str:
        return f"judged on {len(self.judge.truths.names)} pictures ({self.judge.origin}) against {self.judge.source}"

    def _latency(self, typed: Path) -> float | None:
        """Of the engine of a typed graph, ms; None: there is no GPU here, or its layers could not be timed."""
        if self.flavour is None or self.flavour.gpu is None:
            return None
        plan = typed.with_suffix(".plan")
        manifest = build_engine(replace(self.options, from_typed=typed, keep=None, output=plan), self.report)
        times = [layer.time_ms for layer in manifest.engine_layers]
        plan.unlink()
        return sum(time for time in times if time is not None) if any(time is not None for time in times) else None

    def _fp16(self) -> float | None:
        if self.flavour is None or self.flavour.gpu is None:
            return None
        typed = self.folder / "compared.fp16.onnx"
        asked = replace(self.options, precision="fp16", keep=None).precision_options(self.takes)
        typed_graph(self.options.onnx, typed, asked, self.report)
        return self._latency(typed)


def _list_path(options: BuildOptions) -> Path:
    return options.typed.with_suffix(".keep.json")


def _faster(int8_ms: float | None, fp16_ms: float | None) -> Iterator[str]:
    if int8_ms is None or fp16_ms is None:
        return
    if int8_ms * _WORTH < fp16_ms:
        yield f"int8 takes {int8_ms:.3f} ms here and fp16 {fp16_ms:.3f} ms: {fp16_ms / int8_ms:.2f} times as fast"
    else:
        yield f"int8 is not faster than fp16 here: {int8_ms:.3f} ms and {fp16_ms:.3f} ms; build --fp16 instead"
