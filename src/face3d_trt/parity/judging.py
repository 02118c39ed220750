"""The gate of `compare` for graphs that are not in a file: what a build or a search is about to make."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from face3d_trt.errors import MissingError, ModelError
from face3d_trt.names import CROP
from face3d_trt.optional import require
from face3d_trt.parity.batches import Batch
from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.strain import meaning_strain, row_strain, strain
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

    from face3d_trt.decode import Decoder
    from face3d_trt.parity.limits import Limits
    from face3d_trt.parity.pictures import Chosen
    from face3d_trt.parity.runners import Candidate
    from face3d_trt.parity.truth import Truths
    from face3d_trt.parity.verdict import Failure, MeaningRow, Row
    from face3d_trt.records import ModelInfo, Precision

AT_ONCE = 8  # rows in a batch: `compare` has shown that the size of the batch does not matter


@dataclass(frozen=True)
class Judged:
    """What the gate says of one graph.

    Attributes:
        rows: Figures by coefficient group and output.
        meaning: Figures in mm, px and so on; () without a morphable model.
        failures: Empty when every limit is kept.
        margin: The share of a limit that may be used.
    """

    rows: tuple[Row, ...]
    meaning: tuple[MeaningRow, ...]
    failures: tuple[Failure, ...]
    margin: float = math.inf

    @property
    def passed(self) -> bool:
        """Whether nothing failed, and no more of a limit is used than the margin allows."""
        return not self.failures and self.strain <= self.margin

    @property
    def strain(self) -> float:
        """The largest share of a limit that a row uses; above 1 it fails. Infinite when a value is not finite."""
        return max([strain for strain, _ in self._by_group()] + [strain for strain, _ in self._by_meaning()])

    @property
    def worst_group(self) -> str:
        """`texture 13.31 %`, of the coefficient group or output that uses the largest share of its limit."""
        _, row = max(self._by_group(), key=lambda each: each[0])
        return f"{row.group or row.output} {row.relative:.2%}"

    @property
    def worst_meaning(self) -> str:
        """`shape alone, mean 0.41 mm`, likewise; `-` where there is none."""
        every = self._by_meaning()
        if not every:
            return "-"
        _, row = max(every, key=lambda each: each[0])
        measure, figures = MEASURES[row.measure], ((row.median, row.allowed_median), (row.worst, row.allowed_worst))
        used = [(strain(row.measure, value, allowed), value) for value, allowed in figures if allowed is not None]
        value = max(used)[1] if used else row.worst
        return f"{measure.title} {value:.4g} {measure.unit}".rstrip()

    @property
    def worst(self) -> str:
        """Both, and how much of its limit the worse one uses."""
        return f"{self.worst_group}; {self.worst_meaning}; {self.strain:.0%} of the limit"

    def _by_group(self) -> list[tuple[float, Row]]:
        return [(row_strain(replace(row, gated=True)) or 0.0, row) for row in self.rows]

    def _by_meaning(self) -> list[tuple[float, MeaningRow]]:
        return [(meaning_strain(replace(row, gated=True)) or 0.0, row) for row in self.meaning]


class Judge:
    """Judges typed graphs of one model on one set of pictures, each at one batch size.

    Args:
        truths: What is right, by float32 PyTorch, or by the float32 graph where there is no PyTorch.
        decoder: The morphable model; None: nothing is said in mm.
        limits: All limits.
        precision: Whose limits apply.
        gated: Whether they count; if not, only values that are not finite fail.
        source: What the truth stands on, for people.
        origin: Where the pictures come from.
        fingerprint: Of the pictures.
        side: Height and width of the pictures as they are fed, px.
        margin: The share of a limit that may be used; below 1 where other pictures are to hold to the limit as well.
    """

    def __init__(
        self,
        truths: Truths,
        decoder: Decoder | None,
        limits: Limits,
        precision: Precision,
        *,
        gated: bool,
        source: str,
        origin: str,
        fingerprint: str,
        side: tuple[int, int] = (CROP, CROP),
        margin: float = math.inf,
    ) -> None:
        from face3d_trt.parity.meaning import Meter, find_similarity

        self.truths, self.limits, self.precision, self.gated = truths, limits, precision, gated
        self.source, self.origin, self.fingerprint, self.side = source, origin, fingerprint, side
        self.margin = margin if gated else math.inf
        self._meter = Meter(decoder, find_similarity()) if decoder is not None else None

    def within(self, margin: float) -> Judge:
        """The same judge with another margin."""
        other = copy(self)
        other.margin = margin if self.gated else math.inf
        return other

    def graph(self, typed: ModelProto, path: Path, rows: int = AT_ONCE, *, brief: bool = False) -> Judged:
        """Judge a typed graph; messages call it `path`.

        Args:
            typed: The graph.
            path: Of it.
            rows: In a batch.
            brief: Nothing is said in mm where the coefficient groups fail already: that takes two thirds of the time.

        Raises:
            GraphError: ONNX Runtime cannot load it.
        """
        from face3d_trt.parity.runners import Candidate, graph_runner

        runner, rows = graph_runner(typed, path), min(rows, len(self.truths.names))
        return self.candidate(
            Candidate(runner.name, f"ONNX Runtime, {path.name}", self.precision, lambda profile: runner),
            rows=rows,
            brief=brief,
        )

    def candidate(self, candidate: Candidate, profile: int = 0, rows: int = AT_ONCE, *, brief: bool = False) -> Judged:
        """Judge whatever runs, in batches of `rows`."""
        from face3d_trt.parity.gate import broken_failures, judge, reference_failures
        from face3d_trt.parity.gather import Gatherer
        from face3d_trt.parity.meaning_gate import judge_faces
        from face3d_trt.parity.measure import measure

        batch = Batch(profile, rows, *self.side)
        gatherer = Gatherer(self._meter, self.truths.names)
        found = measure(self.truths, [candidate], [batch], gatherer=gatherer)
        precisions, titles = {candidate.name: candidate.precision}, {candidate.name: candidate.title}
        ungated: frozenset[Precision] = frozenset() if self.gated else frozenset({self.precision})
        rows_, failures = judge(found.measured, precisions, titles, self.limits, ungated)
        if brief and failures:
            return Judged(tuple(rows_), (), tuple(failures))
        meaning, unlike = judge_faces(gatherer.errors(self.truths), precisions, titles, self.limits, ungated)
        broken = [*reference_failures(found.diseased), *broken_failures(found.broken, titles)]
        return Judged(tuple(rows_), tuple(meaning), (*broken, *failures, *unlike), self.margin)


@dataclass(frozen=True)
class JudgeOptions:
    """On what a Judge stands.

    Attributes:
        info: Of the model that was exported.
        beside: A file near which the model is looked for.
        precision: Whose limits apply.
        images: A photo, a crop or a folder; None: the package's sample faces.
        model: Directory or ModelScope id; None: the one that was exported.
        limits: A file like `limits.json`; None: the package's.
        limit: The most pictures that are taken of a folder.
        side: Height and width of the pictures as they are fed, px.
    """

    info: ModelInfo
    beside: Path
    precision: Precision
    images: Path | None = None
    model: str | None = None
    limits: Path | None = None
    limit: int = 16
    side: tuple[int, int] = (CROP, CROP)


def find_judge(options: JudgeOptions, report: Reporter = SILENT, *, held_out: bool = False) -> Judge:
    """A judge by float32 PyTorch and the model's morphable model.

    Args:
        options: On what it stands.
        report: Told what is read and computed.
        held_out: On the pictures that the first of `find_judges` does not see.

    Raises:
        MissingError: There is no PyTorch here, or another package is missing.
        ModelError: The model is not where it was, or is another one than the one that was exported.
        UsageError: The limits file is malformed.
        ImageError, FaceError, CalibrationError: No picture can be used.
    """
    from face3d_trt.parity.held_out import parted

    judge_on, chosen = _bench(options, report)
    return judge_on(parted(chosen)[1] if held_out else chosen)


def find_judges(options: JudgeOptions, margin: float, report: Reporter = SILENT) -> tuple[Judge, Judge]:
    """A judge to choose by, with a margin, and one on pictures that take no part in the choice; as `find_judge`."""
    from face3d_trt.parity.held_out import parted

    judge_on, chosen = _bench(options, report)
    choice, rest = parted(chosen)
    return judge_on(choice, margin), judge_on(rest)


class _JudgeOn(Protocol):
    def __call__(self, chosen: Chosen, margin: float = math.inf) -> Judge: ...


def _bench(options: JudgeOptions, report: Reporter) -> tuple[_JudgeOn, Chosen]:
    """What judges on any pictures by the model, and the pictures that the options name."""
    for module, extra in (("torch", "export"), ("polygraphy", "compare"), ("onnxruntime", "cpu")):
        require(module, extra, "judging against float32 PyTorch")
    from face3d_trt.decode import Decoder
    from face3d_trt.parity.limits import load_limits
    from face3d_trt.parity.places import find_model
    from face3d_trt.parity.session import Session

    info, session, limits = options.info, Session(report), load_limits(options.limits)
    source = options.model or find_model(info, options.beside)
    if source is None:
        raise ModelError(
            f"the model directory {info.source} is not here, nor beside or above {options.beside}",
            allowed="the directory that was exported, wherever it is now",
            run="the same command with --model DIRECTORY",
        )
    model = session.model(source, morphable=True if info.outputs == "mesh" else None)
    if model.checkpoint_sha256 != info.checkpoint_sha256:
        raise ModelError(
            f"{model.source} has another checkpoint than the one that was exported",
            allowed="the model that the graph was exported from",
            run="face3d-trt export, or the same command with --model DIRECTORY",
        )
    decoder = Decoder.of(model.morphable) if model.morphable is not None else None

    def judge_on(chosen: Chosen, margin: float = math.inf) -> Judge:
        truths = session.reference(model, info, chosen)
        return _judge(truths, decoder, limits, options, chosen, "float32 PyTorch", margin)

    return judge_on, session.pictures(options.images, info, options.limit)


def exact_judge(onnx: Path, options: JudgeOptions, report: Reporter = SILENT) -> Judge:
    """A judge by the float32 graph, where there is no PyTorch: coefficient groups only, nothing in mm."""
    for module, extra in (("polygraphy", "compare"), ("onnxruntime", "cpu")):
        require(module, extra, "judging against the float32 graph")
    from face3d_trt.parity.limits import load_limits
    from face3d_trt.parity.pictures import choose_pictures
    from face3d_trt.parity.runners import float32_runner
    from face3d_trt.parity.truth import Reference

    chosen = choose_pictures(options.images, options.info, options.limit, report)
    truths = Reference(float32_runner(onnx), chosen.pictures)
    return _judge(truths, None, load_limits(options.limits), options, chosen, "the float32 ONNX graph")


def any_judge(onnx: Path, options: JudgeOptions, report: Reporter = SILENT) -> Judge:
    """`find_judge`, or, where PyTorch or the model is missing, `exact_judge`, with a warning."""
    try:
        return find_judge(options, report)
    except (MissingError, ModelError) as error:
        report.warn(f"{error.problem}: the gate is about coefficient groups alone, against the float32 ONNX graph")
        return exact_judge(onnx, options, report)


def _judge(
    truths: Truths,
    decoder: Decoder | None,
    limits: Limits,
    options: JudgeOptions,
    chosen: Chosen,
    source: str,
    margin: float = math.inf,
) -> Judge:
    from face3d_trt.parity.session import inputs_sha256

    return Judge(
        truths,
        decoder,
        limits,
        options.precision,
        gated=not (options.precision == "int8" and options.info.weights == "seeded"),
        source=source,
        origin=chosen.origin,
        fingerprint=inputs_sha256(chosen),
        side=options.side,
        margin=margin,
    )
