"""float32 ONNX → typed ONNX: made once for the same content, and not again."""

from __future__ import annotations

import hashlib
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from face3d_trt.errors import CalibrationError, GraphError, PlanError, UsageError
from face3d_trt.files import fingerprint, write_together
from face3d_trt.graph.counts import operations, tally
from face3d_trt.graph.fp16 import RANGE_FACES, Typed, to_fp16
from face3d_trt.graph.front import gather_channels
from face3d_trt.graph.info import load_graph, read_info
from face3d_trt.graph.int8 import FEW_IMAGES, METHODS, RECOMMENDED_IMAGES, Method, to_int8
from face3d_trt.graph.keep import check_names, keep_higher, read_keep
from face3d_trt.graph.macs import int8_share
from face3d_trt.graph.opset import at_opset, opset_of
from face3d_trt.graph.parts import Parts, join, network_of, split
from face3d_trt.optional import import_package
from face3d_trt.records import Calibration, KeptNode, Precision, TypedRecord
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from onnx import ModelProto

    from face3d_trt.faces.collect import FaceSet

PASS_VERSION = 4  # raise it when the passes give another graph for the same inputs
_MODULES = {
    "nvidia-modelopt": "modelopt",
    "onnx": "onnx",
    "onnx-graphsurgeon": "onnx_graphsurgeon",
    "onnxruntime": "onnxruntime",  # from whichever package, the CPU's or the GPU's
}
_TOOLS = {"fp32": ("onnx",), "fp16": tuple(_MODULES), "int8": tuple(_MODULES)}


@dataclass(frozen=True)
class PrecisionOptions:
    """Which typed graph to make.

    Args:
        precision: "fp32", "fp16" or "int8".
        calibration: Folder of aligned crops or photos. "int8" needs it; "fp16" takes a few faces of it to see which
            nodes leave fp16's range, and the package's sample faces where there is none.
        method: How int8 ranges are found.
        strongly_typed: Whether the graph's types decide the precision. If not, a float32 graph is made: plain for
            "fp16", with Q/DQ pairs for "int8".
        opset: ONNX operator set of the result.
        keep: File with nodes that stay in higher precision, as `bisect` writes it.
    """

    precision: Precision
    calibration: Path | None = None
    method: Method = "output"
    strongly_typed: bool = True
    opset: int = 19
    keep: Path | None = None


@dataclass(frozen=True)
class _Faces:
    crops: np.ndarray
    fingerprint: str
    calibration: Calibration | None


def typed_graph(onnx: Path, output: Path, options: PrecisionOptions, report: Reporter = SILENT) -> TypedRecord:
    """Write the typed graph of `onnx` under `output`, its record beside it; arguments and errors as `place_typed`."""
    return place_typed(onnx, output, options, report)[0]


def place_typed(
    onnx: Path,
    output: Path,
    options: PrecisionOptions,
    report: Reporter = SILENT,
    elsewhere: Callable[[], Path] | None = None,
) -> tuple[TypedRecord, Path]:
    """Write the typed graph of `onnx` and its record beside it, unless they stand there already.

    Args:
        onnx: The float32 graph of `face3d-trt export`.
        output: The typed graph; its record is `<output>.json`.
        options: Which graph.
        report: Hears what is done and what is reused.
        elsewhere: Asked, before any work, where another graph than the one that lies under `output` is to go, in the
            same folder; it may raise.

    Returns:
        The record, and where the graph lies.

    Raises:
        GraphError: `onnx` is missing, is not one of ours, or is a typed graph already.
        UsageError: The list of nodes to keep is damaged, or names one that the network has not.
        CalibrationError: There is no usable picture in the calibration folder.
        MissingError: ModelOpt is not installed.
        StorageError: The result cannot be written; nothing is left under its name.
        BuildError: A precision pass failed.
    """
    begun = time.monotonic()
    if output.resolve() == onnx.resolve():
        raise UsageError(
            f"the typed graph would overwrite {onnx}", allowed="another output", run="face3d-trt build -o OTHER.plan"
        )
    wanted = read_keep(options.keep) if options.keep is not None else ()
    model, source = load_graph(onnx)
    try:
        split(model)  # refuses a foreign graph before any work
    except GraphError as error:
        raise GraphError(f"{onnx}: {error.problem}", allowed=error.allowed, run=error.run) from error
    check_names([entry.node for entry in wanted], model, str(options.keep))
    faces = _faces(model, options, report)
    tools = {name: _version(_MODULES[name]) for name in _TOOLS[options.precision]}
    key = _key(source, options, faces, tools, wanted)
    calibration = faces.calibration if faces else None
    opset = options.opset if not options.strongly_typed else max(options.opset, opset_of(model))
    facts: dict[str, Any] = {
        "calibration": calibration,
        "model": read_info(model, str(onnx)),
        "strongly_typed": options.strongly_typed,
        "opset": opset,
    }
    if reused := _reusable(output, key, facts, report):
        return reused, output
    place = elsewhere() if elsewhere is not None else output
    if twin := _copied(place, key, facts, report):
        return twin, place
    _say_stale(output, source, calibration, report)

    parts = split(at_opset(model, opset))
    base = _base(output, _key(source, options, faces, tools, ())) if wanted else None
    own_front = not options.strongly_typed and parts.front is not None  # which the graph that lies there has lost
    if base and not own_front:
        report.stage(f"reused   {base.where} (same graph, pictures and tools), some nodes of it kept higher")
        plain = base.typed(parts)
    else:
        plain = _convert(parts.network, parts.image, options, faces, report)
    typed = _keeping(plain, parts.network, options, wanted)
    share = int8_share(parts.network, typed.network) if options.precision == "int8" else 0.0
    report.stage(_summary(typed, options, share))
    data = _joined(typed, parts, opset, options)
    record = TypedRecord(
        precision=options.precision,
        fingerprint=key,
        sha256=hashlib.sha256(data).hexdigest(),
        source_sha256=source,
        plain_sha256=_plain_sha256(base, plain, parts, opset, options) if wanted else None,
        int8_macs=round(share, 4),
        nodes=tally(operations(typed.network)).operations,
        kept=typed.kept,
        tools=tools,
        seconds=round(time.monotonic() - begun, 3),
        **facts,
    )
    write_typed_files(place, data, record)
    return record, place


def record_path(typed: Path) -> Path:
    """`a.int8.onnx` → `a.int8.onnx.json`."""
    return typed.with_name(typed.name + ".json")


def _convert(
    network: ModelProto, image: str, options: PrecisionOptions, faces: _Faces | None, report: Reporter
) -> Typed:
    if options.precision == "int8":
        assert faces is not None
        report.stage(f"calibrating int8 ({options.method}) on {len(faces.crops)} faces")
        high: Literal["fp16", "fp32"] = "fp16" if options.strongly_typed else "fp32"
        return to_int8(network, image, faces.crops, options.method, high_precision=high, report=report)
    if options.precision == "fp16" and options.strongly_typed:
        from face3d_trt.faces.tensor import to_input

        assert faces is not None
        report.stage(f"converting to fp16 by AutoCast on {len(faces.crops)} faces")
        return to_fp16(network, image, to_input(faces.crops, "float32"))
    return Typed(network, ())


def _joined(typed: Typed, parts: Parts, opset: int, options: PrecisionOptions) -> bytes:
    """The whole graph as it is written."""
    result = join(parts.with_network(at_opset(typed.network, opset)))
    if not options.strongly_typed:
        gather_channels(result)
    data: bytes = result.SerializeToString()
    return data


def _plain_sha256(base: _Base | None, plain: Typed, parts: Parts, opset: int, options: PrecisionOptions) -> str:
    """Of the graph with no node kept by a list: that is the one which `bisect` ranks."""
    return base.record.sha256 if base else hashlib.sha256(_joined(plain, parts, opset, options)).hexdigest()


def _keeping(typed: Typed, network: ModelProto, options: PrecisionOptions, wanted: tuple[KeptNode, ...]) -> Typed:
    """With the nodes `wanted` in higher precision; under a flag for fp16, the builder is told so instead."""
    names = {entry.node for entry in wanted}
    before = tuple(entry for entry in typed.kept if entry.node not in names)
    by_flag = options.precision == "fp16" and not options.strongly_typed
    changed = typed.network if by_flag else keep_higher(typed.network, network, names)
    return Typed(changed, (*before, *wanted), typed.note)


def _faces(model: ModelProto, options: PrecisionOptions, report: Reporter) -> _Faces | None:
    """The pictures that the pass needs; None for a pass that needs none."""
    if options.precision == "fp32":
        return None
    if options.precision == "int8":
        return _calibration_set(model, options, report)
    if not options.strongly_typed:
        return None
    if options.calibration is None:
        from face3d_trt.faces.collect import pixels_fingerprint
        from face3d_trt.faces.samples import sample_crops

        crops = sample_crops()[:RANGE_FACES]
        return _Faces(crops, pixels_fingerprint(crops), None)
    found = _collect(model, options.calibration, report, RANGE_FACES)
    return _Faces(found.crops, found.fingerprint, None)


def _calibration_set(model: ModelProto, options: PrecisionOptions, report: Reporter) -> _Faces:
    folder = options.calibration
    if folder is None:
        raise UsageError("int8 needs pictures of faces to calibrate on", run="face3d-trt build --int8 --calib DIR")
    if options.method not in METHODS:
        raise UsageError(f"calibration method {options.method!r}", allowed=", ".join(METHODS))
    found = _collect(model, folder, report, None)
    if len(found.crops) < FEW_IMAGES:
        report.warn(
            f"{len(found.crops)} calibration faces in {folder}: enough for a trial; "
            f"for real use give {RECOMMENDED_IMAGES} and more, as varied as what will come"
        )
    record = Calibration(
        folder=str(folder),
        method=options.method,
        images=len(found.crops),
        skipped=len(found.skipped),
        fingerprint=found.fingerprint,
    )
    return _Faces(found.crops, found.fingerprint, record)


def _collect(model: ModelProto, folder: Path, report: Reporter, limit: int | None) -> FaceSet:
    from face3d_trt.faces.collect import collect_faces

    if folder.is_file():
        raise CalibrationError(
            f"the calibration folder {folder} is a file",
            allowed="a folder of aligned 224x224 crops or of photos",
            run=f"the same command with --calib {shlex.quote(str(folder.parent))}",
        )
    if not folder.is_dir():
        raise CalibrationError(
            f"the calibration folder {folder} {'is not a folder' if folder.exists() else 'is missing'}",
            allowed="a folder of aligned 224x224 crops or of photos",
            run=f"face3d-trt calib PHOTOS {folder}",
        )
    return collect_faces(folder, read_info(model).template, report=report, limit=limit, by_content=limit is not None)


def _key(
    source: str,
    options: PrecisionOptions,
    faces: _Faces | None,
    tools: dict[str, str],
    wanted: tuple[KeptNode, ...],
) -> str:
    return fingerprint(
        PASS_VERSION,
        source,
        options.precision,
        options.strongly_typed,
        options.opset,
        options.method if options.precision == "int8" else "",
        faces.fingerprint if faces else "",
        *sorted(tools.items()),
        *sorted(f"keep {entry.node}" for entry in wanted),
    )


def float32_path(typed: Path) -> Path:
    """The float32 graph's usual name: `a.onnx` of `a.int8.onnx` and of `a.int8.trt86.onnx`."""
    stem, dot, _ = typed.stem.rpartition(".")
    for precision in ("fp32", "fp16", "int8"):
        if dot and stem.endswith(f".{precision}"):
            stem = stem.removesuffix(f".{precision}")
    return typed.with_name(f"{stem or typed.stem}.onnx")


def _reusable(output: Path, key: str, facts: dict[str, Any], report: Reporter) -> TypedRecord | None:
    """The record of a typed graph that was made from the same content and has not been touched since.

    Pictures are the same when their pixels are; the folder that they lie in now is what the record then names, and
    `facts` that it lacks are added.
    """
    found = _made(output, report)
    if not found or found[0].fingerprint != key:
        return None
    report.stage(f"reused   {output} (same graph, pictures and tools)")
    record = found[0].model_copy(update=facts)
    if record != found[0]:
        record.write(record_path(output))
    return record


def _copied(place: Path, key: str, facts: dict[str, Any], report: Reporter) -> TypedRecord | None:
    """The same for one that stands under `place`, or under another name in its folder, from where it is copied."""
    if (made := _made(place, SILENT)) and made[0].fingerprint == key:
        return _reusable(place, key, facts, report)
    if not (twin := _twin(place, key)):
        return None
    report.stage(f"reused   {twin[2]} (same graph, pictures and tools), copied to {place}")
    record = twin[0].model_copy(update=facts)
    write_typed_files(place, twin[1], record)
    return record


def _say_stale(output: Path, source: str, calibration: Calibration | None, report: Reporter) -> None:
    if found := _made(output, SILENT):
        report.stage(f"stale    {output}: {_difference(found[0], source, calibration)}")


def _made(output: Path, report: Reporter) -> tuple[TypedRecord, bytes] | None:
    """The record under `output` and the bytes that it vouches for."""
    path = record_path(output)
    if not output.is_file() or not path.exists():
        return None
    try:
        record = TypedRecord.read(path)
    except PlanError:
        report.warn(f"{path} cannot be read; {output.name} is made again")
        return None
    data = output.read_bytes()
    if record.sha256 != hashlib.sha256(data).hexdigest():
        report.warn(f"{output} was changed since it was made; it is made again")
        return None
    return record, data


def _twin(output: Path, key: str) -> tuple[TypedRecord, bytes, Path] | None:
    """The same for another typed graph in the folder of `output`, made of what `key` stands for."""
    for path in sorted(output.parent.glob("*.onnx.json")):
        other = path.with_suffix("")
        made = _made(other, SILENT) if other != output else None
        if made and made[0].fingerprint == key:
            return *made, other
    return None


@dataclass(frozen=True)
class _Base:
    """A typed graph that lies there, of which the one that is wanted differs by nodes that are kept alone."""

    where: Path
    record: TypedRecord
    data: bytes

    def typed(self, parts: Parts) -> Typed:
        """As the precision pass gave it."""
        import onnx

        return Typed(network_of(onnx.load_model_from_string(self.data), parts), self.record.kept)


def _base(output: Path, plain: str) -> _Base | None:
    """The typed graph of the same content with no node kept: under `output`, or in its folder."""
    found = _made(output, SILENT)
    if found and found[0].fingerprint == plain:
        return _Base(output, *found)
    twin = _twin(output, plain)
    return _Base(twin[2], twin[0], twin[1]) if twin else None


def write_typed_files(output: Path, data: bytes, record: TypedRecord) -> None:
    """A typed graph and its record, both or none."""
    write_together([(output, data), (record_path(output), record.to_json())])


def _difference(record: TypedRecord, source: str, now: Calibration | None) -> str:
    if record.source_sha256 != source:
        return "another float32 graph"
    before = record.calibration
    if before and now and before.fingerprint != now.fingerprint:
        return f"another calibration set ({now.images} faces of {now.folder}); it is calibrated again"
    if before and now and before.method != now.method:
        return f"another calibration method ({now.method})"
    return "other options or tools"


def _summary(typed: Typed, options: PrecisionOptions, share: float) -> str:
    counts = tally(operations(typed.network))
    line = f"typed    {counts.share(options.precision)}"
    if options.precision == "int8":
        line += f", {share:.1%} of the multiply-adds"
    if not options.strongly_typed and options.precision == "fp16":
        line = "typed    float32 graph; TensorRT's FP16 flag decides"
    if typed.note:
        line += f"\n  {typed.note}"
    return line + "".join(f"\n  kept higher: {node.node}: {node.reason}" for node in typed.kept)


def _version(module: str) -> str:
    try:
        return str(import_package(module).__version__)
    except (ImportError, OSError):  # OSError: a library that it loads is not there
        return "missing"
