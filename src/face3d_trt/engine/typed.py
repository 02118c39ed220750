"""The typed graph that a plan is built from: made here, or made on another machine and read with its record alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.engine.flavour import FLAGS, GENERATIONS, Takes, find_flavour
from face3d_trt.engine.options import BuildOptions, check_typed
from face3d_trt.errors import GraphError, MissingError, PlanError, UsageError
from face3d_trt.files import output_lock
from face3d_trt.graph.info import load_graph, read_info
from face3d_trt.graph.precision import record_path, typed_graph
from face3d_trt.records import ModelInfo, TypedRecord
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.engine.flavour import Flavour

_ELSEWHERE = "face3d-trt build --int8 --calib calibration/ --typed-only --for {}    # where ModelOpt is"


@dataclass(frozen=True)
class Source:
    """What a plan is built from.

    Args:
        record: Of the typed graph.
        info: Facts of the model.
        onnx: The float32 graph: where it lies, or, unless it is here, what it was called by the usual names.
    """

    record: TypedRecord
    info: ModelInfo
    onnx: Path

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
        UsageError: An unknown generation; a graph, or pictures, that do not serve.
        MissingError: No generation is named and no TensorRT is here; or no ModelOpt; or nothing can be written.
    """
    takes = takes_of(generation, report)
    check_typed(options, takes, report)
    with output_lock(options.typed):
        return typed_graph(options.onnx, options.typed, options.precision_options(takes), report)


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
        yield Source(_record(options.from_typed), info, _usual_onnx(options.from_typed))
        return
    with output_lock(options.typed):
        record = typed_graph(options.onnx, options.typed, options.precision_options(flavour.takes), report)
        if record.source_sha256 != digest:
            raise GraphError(f"{options.onnx} was changed while it was being built", run=options.command)
        yield Source(record, info, options.onnx)


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


def typed_bytes(options: BuildOptions, record: TypedRecord) -> bytes:
    """The typed graph, provided that it is the one of the record."""
    try:
        data = options.typed.read_bytes()
    except OSError as error:
        raise GraphError(f"{options.typed} cannot be read: {error.strerror}", run=options.command) from error
    if hashlib.sha256(data).hexdigest() != record.sha256:
        if options.from_typed is not None:
            raise GraphError(
                f"{options.typed} is not the graph that {record_path(options.typed).name} was written for",
                allowed="both files as they were written, copied together",
                run=_ELSEWHERE.format("10"),
            )
        raise GraphError(f"{options.typed} was changed while it was being built", run=options.command)
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


def _usual_onnx(typed: Path) -> Path:
    """The float32 graph's usual name: `a.onnx` of `a.int8.onnx`."""
    return typed.with_name(f"{typed.stem.rpartition('.')[0] or typed.stem}.onnx")


def _made_by(record: TypedRecord) -> str:
    folder = f" --calib {record.calibration.folder}" if record.calibration else ""
    return f"--{record.precision}{folder}"
