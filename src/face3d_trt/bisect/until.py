"""`build --int8 --until-passes`: one calibration after the other, then nodes kept higher, until the gate holds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
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

PICTURES = 32  # of a folder, half of which choose
MARGINS = (0.9, 0.75)  # of the limits where it is chosen, as other pictures use more or less; then a stricter choice
MOST = 16  # nodes kept higher, of the 71 that ModelOpt quantizes in a ResNet50; white noise needed 8 to 13
_WORTH = 1.02  # an engine that is faster by less than this is not faster: runs differ by as much


@dataclass(frozen=True)
class Until:
    """How far to go.

    Args:
        most: The most nodes that may be kept higher.
        images: Pictures; of 16 and more every second one chooses and the others judge. Fewer judge, as do, where None
            are named, the package's samples; renders that the package has for that choose.
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
        passed: Whether the gate holds on the pictures that took no part in the choice.
        strain: The largest share of a limit that is used on the pictures that choose.
        judged: Likewise on those that judge, above 1 the gate does not hold; None: the choice did not fall on it.
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
    judged: float | None
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


def fewest_beyond(outcome: Outcome, most: int) -> Try | None:
    """The try that held where it was chosen with the fewest nodes, of those with more than `most`."""
    held = [each for each in outcome.tries if len(each.kept) > most and each.strain <= 1]
    return min(held, key=lambda each: len(each.kept), default=None)


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
    from face3d_trt.parity.judging import JudgeOptions, find_judges

    check_typed(options, takes, report)
    next_typed(options)  # refuses a name that another plan needs
    check_output(_list_path(options))
    info = read_info(options.onnx)
    report = Once(report)
    asked = JudgeOptions(info, options.onnx, "int8", until.images, until.model, until.limits, PICTURES)
    choice, judge = find_judges(asked, MARGINS[0], report)
    with tempfile.TemporaryDirectory(prefix=f".{options.plan.stem}.", dir=options.plan.parent) as name:
        search = _Search(options, takes, until, flavour, choice, judge, Path(name), report)
        return search.run()


@dataclass(frozen=True)
class _Search:
    options: BuildOptions
    takes: Takes
    until: Until
    flavour: Flavour | None
    choice: Judge
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
            for margin in MARGINS if plain.judged is None else MARGINS[1:]:
                record = self._ranked(plain.method, margin)
                tries.append(self._kept(plain.method, record, margin))
                if tries[-1].passed:
                    return self._won(tries, record)
                if tries[-1].judged is None:  # a stricter choice keeps more
                    break
        return Outcome(tuple(tries), None, notes=self._on(tries))

    def _seed(self) -> None:
        """Let a typed graph of an earlier build be reused where it is one of those that are tried."""
        for path in (self.options.typed, record_path(self.options.typed)):
            if path.is_file():
                shutil.copy(path, self.folder / path.name.replace(self.options.typed.name, "earlier.onnx"))

    def _typed(self, method: Method) -> Path:
        return self.folder / f"{method}.int8.onnx"

    def _kept_path(self, method: Method) -> Path:
        return self.folder / f"{method}.kept.int8.onnx"

    def _plain(self, method: Method) -> Try:
        asked = replace(self.options, method=method).precision_options(self.takes)
        record = typed_graph(self.options.onnx, self._typed(method), asked, self.report)
        return self._try(method, (), self._typed(method), record)

    def _ranked(self, method: Method, margin: float) -> BisectRecord:
        graphs = graphs_of(self.options.onnx, self._typed(method), "int8")
        state = self.options.plan.with_name(f".{self.options.plan.stem}.{method}.state")
        return bisect(graphs, self.choice.within(margin), state, self.until.most, self.report)

    def _kept(self, method: Method, found: BisectRecord, margin: float) -> Try:
        path, names = self.folder / f"{method}.keep.json", tuple(entry.node for entry in found.keep)
        typed = self._kept_path(method)
        if not names:  # no list helps
            record = TypedRecord.read(record_path(self._typed(method)))
            return self._try(method, (), self._typed(method), record, margin)
        found.write(path)
        asked = replace(self.options, method=method, keep=path).precision_options(self.takes)
        return self._try(method, names, typed, typed_graph(self.options.onnx, typed, asked, self.report), margin)

    def _try(
        self, method: Method, names: tuple[str, ...], typed: Path, record: TypedRecord, margin: float = MARGINS[0]
    ) -> Try:
        from face3d_trt.graph.counts import operations, tally
        from face3d_trt.graph.info import read_graph

        graph = read_graph(typed)
        found = self.choice.within(margin).graph(graph, typed)
        chosen = found.passed and len(names) <= self.until.most
        judged = self.judge.graph(graph, typed) if chosen else None
        worst = judged or found
        made = Try(
            method,
            names,
            judged is not None and judged.passed,
            found.strain,
            None if judged is None else judged.strain,
            worst.worst_group,
            worst.worst_meaning,
            tally(operations(graph)).share("int8").partition(" conv")[0],
            record.int8_macs,
            self._latency(typed),
        )
        said = "passes" if made.passed else "does not pass" if judged is None else "does not pass where it is judged"
        self.report.stage(f"tried      {method}, {len(names)} nodes kept higher: {said}: {worst.worst}")
        return made

    def _won(self, tries: list[Try], found: BisectRecord | None) -> Outcome:
        """Put the typed graph, and the list of its nodes, where the build will find them."""
        method, options = tries[-1].method, self.options
        typed = self._typed(method) if found is None else self._kept_path(method)
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
        return Outcome(tuple(tries), final, fp16, (*self._on(tries), *_faster(tries[-1].latency_ms, fp16)))

    def _on(self, tries: Sequence[Try]) -> tuple[str, ...]:
        choice, judge = self.choice, self.judge
        share = ", then ".join(f"{margin:.0%}" for margin in MARGINS)
        by = (
            f"chosen on {len(choice.truths.names)} pictures ({choice.origin}): at most {share} of each limit",
            f"judged on {len(judge.truths.names)} others ({judge.origin}) against {judge.source}",
        )
        count = sum(each.judged is not None for each in tries)
        if count > 1:
            return (*by, f"{count} choices were judged, one after the other, so the last figure flatters a little")
        return by

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
