"""The typed graph that a plan is built from: made here, or made on another machine and read with its record alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.engine.flavour import FLAGS, GENERATIONS, MARKS, TYPES, Takes, find_flavour
from face3d_trt.engine.options import BuildOptions, check_typed
from face3d_trt.errors import GraphError, MissingError, PlanError, UsageError
from face3d_trt.files import output_lock, sha256_file
from face3d_trt.graph.info import load_graph, read_info
from face3d_trt.graph.precision import float32_path, place_typed, record_path
from face3d_trt.records import Manifest, ModelInfo, TypedRecord
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.engine.flavour import Flavour

NEXT = ".next"  # in the name of a typed graph whose plan has not got its name yet
_ELSEWHERE = "face3d-trt build --int8 --calib calibration/ --typed-only --for {}    # where ModelOpt is"


@dataclass(frozen=True)
class Source:
    """What a plan is built from.

    Args:
        record: Of the typed graph.
        info: Facts of the model.
        onnx: The float32 graph: where it lies, or, unless it is here, what it was called by the usual names.
        typed: Where the typed graph lies; not yet under its own name where the plan that is there needs the former one.
    """

    record: TypedRecord
    info: ModelInfo
    onnx: Path
    typed: Path

    def onnx_from(self, plan: Path) -> str:
        """The path of the float32 graph relative to the plan's folder."""
        return os.path.relpath(self.onnx.resolve(), plan.parent.resolve())


def write_typed(options: BuildOptions, generation: str | None = None, report: Reporter = SILENT) -> TypedRecord:
    """Make the typed graph and its record, for a machine that has TensorRT and neither ModelOpt nor onnx.

    Args:
        options: Those about graph, precision and calibration count.
        generation: Which TensorRT will build it: "8.6", "10", "11" or "rtx"; None: the one of this machine.
        report: Hears stages and warnings.

    Raises:
        UsageError: An unknown generation; a graph, or pictures, that do not serve; the graph that it would replace is
            what a plan beside it was built from.
        MissingError: No generation is named and no TensorRT is here; or no ModelOpt; or nothing can be written.
    """
    takes = takes_of(generation, report)
    check_typed(options, takes, report)
    with output_lock(options.typed):
        record, _ = place_typed(
            options.onnx, options.typed, options.precision_options(takes), report, lambda: unneeded(options.typed)
        )
        return record


def named_for(options: BuildOptions, generation: str | None) -> BuildOptions:
    """With a name of its own for a graph that is not of the kind that this machine builds, unless it was given one.

    `face.int8.onnx` belongs to the plan `face.int8.plan` that is built here, so the graph for TensorRT 8.6 is then
    `face.int8.trt86.onnx`. Where no TensorRT is, TensorRT 8.6 counts as another one.

    Raises:
        UsageError: There is no such generation.
    """
    if generation is None or options.output is not None:
        return options
    takes = takes_of(generation, SILENT)
    try:
        here = find_flavour().takes
    except MissingError:
        here = TYPES
    plan = options.plan if takes == here else options.plan.with_suffix(f".{MARKS[takes]}.plan")
    return replace(options, output=plan)


def unneeded(typed: Path, own: Path | None = None) -> Path:
    """`typed`, unless a plan in its folder was built from the graph of that name.

    `compare`, `bisect` and ONNX Runtime in the plan's place would have nothing to stand on.

    Args:
        typed: Where a graph is to go.
        own: A plan that is built anew together with the graph.

    Raises:
        UsageError: The manifest of another plan than `own` names this file, with these bytes.
    """
    for plan in built_from(typed):
        if own is None or plan.resolve() != own.resolve():
            raise UsageError(
                f"{typed} is what {plan} was built from: another graph under that name would leave the plan without it",
                allowed="another name, or the plan moved away together with its files",
                run=f"the same command with -o {shlex.quote(str(typed.with_name('OTHER.plan')))}",
            )
    return typed


def next_typed(options: BuildOptions) -> Path:
    """Where a new typed graph waits until its plan gets its name: `NAME.next.onnx` where a plan stands there already.

    Raises:
        UsageError: Another plan was built from the graph that has its name.
    """
    typed = unneeded(options.typed, options.plan)
    return typed.with_suffix(f"{NEXT}.onnx") if any(built_from(typed)) else typed


def final_files(options: BuildOptions, source: Source, data: bytes) -> list[tuple[Path, bytes]]:
    """The typed graph and its record under their own names, where they are not there yet."""
    if source.typed == options.typed:
        return []
    return [(options.typed, data), (record_path(options.typed), source.record.to_json())]


def forget_next(options: BuildOptions) -> None:
    """Take away what `next_typed` named, once the plan has its name."""
    waiting = options.typed.with_suffix(f"{NEXT}.onnx")
    if options.from_typed is None:
        for path in (waiting, record_path(waiting)):
            path.unlink(missing_ok=True)


def built_from(typed: Path) -> Iterator[Path]:
    """The plans in the folder of a typed graph whose manifests name this file, with these bytes."""
    if not typed.is_file():
        return
    digest = sha256_file(typed)
    for path in sorted(typed.parent.glob("*.plan.json")):
        try:
            manifest = Manifest.read(path)
        except PlanError:
            continue
        plan = path.with_suffix("")
        same = manifest.typed_sha256 == digest and (path.parent / manifest.typed).resolve() == typed.resolve()
        if same and plan.is_file():
            yield plan


def model_of(options: BuildOptions) -> tuple[ModelInfo, str]:
    """Facts of the model and the hash of its float32 graph, before the typed graph is made.

    Raises:
        GraphError: The graph is missing or foreign.
    """
    if options.from_typed is not None:
        record = _record(options.from_typed)
        return _info(record, options.from_typed), record.source_sha256
    graph, digest = load_graph(options.onnx)
    return read_info(graph, str(options.onnx)), digest


@contextlib.contextmanager
def source_of(
    options: BuildOptions, flavour: Flavour, info: ModelInfo, digest: str, report: Reporter
) -> Iterator[Source]:
    """The typed graph, held for this build alone where it is made here.

    Raises:
        GraphError: What was read before was changed meanwhile.
    """
    if options.from_typed is not None:
        typed = options.from_typed
        yield Source(_record(typed), info, float32_path(typed), typed)
        return
    with output_lock(options.typed):
        wanted = options.precision_options(flavour.takes)
        record, typed = place_typed(options.onnx, options.typed, wanted, report, lambda: next_typed(options))
        if record.source_sha256 != digest:
            raise GraphError(f"{options.onnx} was changed while it was being built", run=options.command)
        if typed != options.typed and sha256_file(options.typed) == record.sha256:  # another way to the same bytes
            record.write(record_path(options.typed))
            typed = options.typed
        yield Source(record, info, options.onnx, typed)


def completed(options: BuildOptions, flavour: Flavour) -> BuildOptions:
    """With what the record of `from_typed` says in the place of what only a build from the float32 graph asks.

    Raises:
        UsageError: The graph is of the kind that another TensorRT takes.
    """
    typed = options.from_typed
    if typed is None:
        return options
    record = _record(typed)
    if record.strongly_typed != flavour.takes.strongly_typed:
        here = "8.6" if flavour.takes == FLAGS else "rtx" if flavour.name == "tensorrt_rtx" else "10"
        kind = "its own types decide" if record.strongly_typed else "it is float32 and leaves its precision to flags"
        raise UsageError(
            f"{typed} is not a graph for {flavour}: {kind}",
            allowed="a float32 graph at opset 17 for TensorRT 8.6, a strongly typed one for every other",
            run=_ELSEWHERE.format(here).replace("--int8 --calib calibration/", _made_by(record)),
        )
    calibration = Path(record.calibration.folder) if record.calibration else None
    method = record.calibration.method if record.calibration else options.method
    return replace(options, precision=record.precision, calibration=calibration, method=method)


def typed_bytes(options: BuildOptions, source: Source) -> bytes:
    """The typed graph, provided that it is the one of the record."""
    typed = source.typed
    try:
        data = typed.read_bytes()
    except OSError as error:
        raise GraphError(f"{typed} cannot be read: {error.strerror}", run=options.command) from error
    if hashlib.sha256(data).hexdigest() != source.record.sha256:
        if options.from_typed is not None:
            raise GraphError(
                f"{typed} is not the graph that {record_path(typed).name} was written for",
                allowed="both files as they were written, copied together",
                run=_ELSEWHERE.format("10"),
            )
        raise GraphError(f"{typed} was changed while it was being built", run=options.command)
    return data


def takes_of(generation: str | None, report: Reporter) -> Takes:
    """The kind of graph that a generation of TensorRT takes; None: the one of this machine.

    Raises:
        UsageError: There is no such generation.
        MissingError: None is named, and no TensorRT is here.
    """
    if generation is None:
        try:
            return find_flavour(report).takes
        except MissingError as error:
            raise MissingError(
                f"which TensorRT is the graph for? {error.problem}",
                allowed=f"--for {', '.join(GENERATIONS)}",
                run="face3d-trt build --typed-only --for 10",
            ) from error
    if generation not in GENERATIONS:
        raise UsageError(
            f"--for {generation}: no such TensorRT",
            allowed=", ".join(GENERATIONS),
            run="face3d-trt build --typed-only --for 8.6",
        )
    return GENERATIONS[generation]


def _record(typed: Path) -> TypedRecord:
    path = record_path(typed)
    if not typed.is_file() or not path.is_file():
        missing = path if typed.is_file() else typed
        raise GraphError(
            f"{missing} is missing",
            allowed=f"a typed graph with its record beside it: NAME.int8.onnx, NAME.int8.onnx{path.suffix}",
            run=_ELSEWHERE.format("10"),
        )
    try:
        return TypedRecord.read(path)
    except PlanError as error:
        raise GraphError(error.problem, allowed=error.allowed, run=_ELSEWHERE.format("10")) from error


def _info(record: TypedRecord, typed: Path) -> ModelInfo:
    if record.model is None:
        raise GraphError(
            f"{record_path(typed)} is of an earlier version and knows nothing of the model",
            allowed="a record of this version; the typed graph itself is reused where it was made",
            run=_ELSEWHERE.format("10"),
        )
    return record.model


def _made_by(record: TypedRecord) -> str:
    folder = f" --calib {record.calibration.folder}" if record.calibration else ""
    return f"--{record.precision}{folder}"
