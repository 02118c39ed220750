"""What travels beside an artefact: facts of the model, of the typed ONNX, of the plan. JSON by pydantic.

`model.onnx` carries a ModelInfo in its metadata; `<typed>.onnx.json` is a TypedRecord; `<plan>.json` is a Manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from face3d_trt.errors import PlanError
from face3d_trt.files import write_together

_BUILD = "face3d-trt build --fp16    # or --fp32, --int8, with the --onnx and -o of that plan"
DIGEST = "digest"  # the key in a manifest's file
_ANY = "NAME.plan"
_LONGEST = 255  # bytes of a file's name
Precision = Literal["fp32", "fp16", "int8"]
Weights = Literal["checkpoint", "seeded", "learned"]
R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """Immutable, strict about unknown keys, stored as indented JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def write(self, path: Path) -> None:
        """Write as JSON under `path`, whole or not at all."""
        write_together([(path, self.to_json())])

    def to_json(self) -> bytes:
        """What `write` writes."""
        return (self.model_dump_json(indent=2) + "\n").encode()

    @classmethod
    def read(cls: type[R], path: Path) -> R:
        """Read from `path`.

        Raises:
            PlanError: The file is missing, or is not such a record.
        """
        try:
            return cls._parse(path.read_text(encoding="utf-8"), path)
        except FileNotFoundError as error:
            raise PlanError(
                f"{path} is missing",
                allowed="NAME.plan with NAME.plan.json beside it, as build writes them",
                run=_BUILD,
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise PlanError(
                f"{path} is not a {cls.__name__} of this version: {where}: {first['msg']}",
                allowed="the file as build wrote it",
                run=_BUILD,
            ) from error
        except (UnicodeDecodeError, OSError) as error:
            raise PlanError(
                f"{path} cannot be read: {error}", allowed="the file as build wrote it", run=_BUILD
            ) from error

    @classmethod
    def _parse(cls: type[R], text: str, path: Path) -> R:
        return cls.model_validate_json(text)


class ModelInfo(Record):
    """Facts of the exported model; also inside the ONNX file, under the metadata key `face3d`."""

    source: str  # what the user named: a directory or a ModelScope id
    revision: str | None
    weights: Weights  # "seeded": random weights of a stand-in, whose INT8 figures mean nothing
    checkpoint_sha256: str
    width: int  # channels of the first convolution; 64 upstream
    vertices: int
    outputs: Literal["coeffs", "mesh"]
    input: Literal["float32", "uint8"]
    template: tuple[tuple[float, float, float], ...]  # the five 3D points that alignment fits, 1.0 = 100 mm
    version: str  # of face3d-trt


class Calibration(Record):
    """Which pictures calibrated an INT8 graph."""

    folder: str
    method: Literal["output", "entropy", "max"]
    images: int
    skipped: int
    fingerprint: str  # of the crops' pixels, whatever the files are called


class KeptNode(Record):
    """A node of the network that stays higher although a lower precision was asked for."""

    node: str
    reason: str
    asked: bool = False  # by a list of the user's or of `bisect`; else the precision pass found it so


class KeepEntry(Record):
    """A node that is to stay in higher precision; a list written by hand needs `node` alone."""

    node: str
    loss: float | None = None  # as in Sensitivity
    share: float | None = None  # of the multiply-adds, 0 to 1
    reason: str = "asked for"


class KeepList(Record):
    """What `build --keep` reads: a BisectRecord, or `{"keep": [{"node": "backbone.conv1/Conv"}]}` written by hand."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    keep: tuple[KeepEntry, ...]


class Sensitivity(Record):
    """What one node costs in its lower precision, all others in float32."""

    node: str
    precision: Precision
    loss: float | None  # root mean square error over its limit, in the group where that is largest; None: not finite
    group: str  # that coefficient group
    errors: dict[str, float]  # by group, relative to the variation between pictures; {} when not finite
    share: float  # of the multiply-adds, 0 to 1
    own_error: float | None  # of its own output, given float32 inputs: rms error over rms; None: not finite
    damage: str | None = None  # what is wrong with it beyond rounding


class BisectRecord(Record):
    """What `bisect` found; `build --keep` takes the nodes in `keep`."""

    schema_version: Literal[1] = 1
    precision: Precision
    onnx: str  # float32 ONNX
    onnx_sha256: str
    typed: str
    typed_sha256: str
    pictures: tuple[str, ...]
    origin: str
    reference: str  # what the gate stands on
    channels: str  # order in which the typed graph reads the colours: "RGB" as it should be, "BGR", ...
    passed_before: bool  # whether the gate holds with nothing kept
    passed: bool  # whether it holds with `keep`
    worst_before: str  # the row that is furthest from its limit
    worst: str  # the same with `keep`
    keep: tuple[KeepEntry, ...]
    kept_before: tuple[str, ...] = ()  # nodes of `keep` that the typed graph keeps already, by an earlier list
    build: str = ""  # the command that builds with `keep`; empty where none is needed or none helps
    ranking: tuple[Sensitivity, ...]  # damaged nodes first, then by loss
    notes: tuple[str, ...]
    seconds: float
    version: str  # of face3d-trt


class TypedRecord(Record):
    """How a typed ONNX came to be. Reuse is decided by `fingerprint` and `sha256`, never by name or date."""

    schema_version: Literal[1] = 1
    precision: Precision
    fingerprint: str  # of everything that went in
    sha256: str  # of the typed ONNX itself
    source_sha256: str  # of the float32 ONNX
    plain_sha256: str | None = None  # of the same typed ONNX before nodes were kept by a list; None: there is no list
    calibration: Calibration | None
    nodes: dict[str, int]  # nodes of the network by type: {"int8": 53, "fp16": 120, "fp32": 4}
    int8_macs: float = 0.0  # share of the multiply-adds in int8, 0 to 1
    kept: tuple[KeptNode, ...]
    tools: dict[str, str]  # package -> version
    seconds: float
    model: ModelInfo | None = None  # of the float32 ONNX, so that a machine without onnx can build from this graph
    strongly_typed: bool = True  # False: a float32 graph, for a TensorRT whose flags decide the precision
    opset: int | None = None


class ProfileRecord(Record):
    """One optimization profile of the input: shapes as lists of int."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    @model_validator(mode="after")
    def _check(self) -> ProfileRecord:
        if not len(self.min) == len(self.opt) == len(self.max) == 4:
            raise ValueError("min, opt and max have four axes each")
        if any(not 1 <= low <= usual <= high for low, usual, high in zip(self.min, self.opt, self.max, strict=True)):
            raise ValueError("on each axis 1 <= min <= opt <= max")
        return self


class TensorRecord(Record):
    """One input or output of the plan; -1 is a dynamic dimension."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Gpu(Record):
    """The GPU a plan was built on."""

    name: str
    compute_capability: str  # "9.0"
    driver: str


class LayerRecord(Record):
    """One layer of the finished engine, as the engine inspector names it."""

    name: str
    kind: str  # TensorRT's layer type: "CaskConvolution", "PointWiseV2", ...; "Reformat" for all that moves data
    precision: Literal["int8", "fp16", "fp32", "other"]  # that it computes in
    time_ms: float | None = None  # of one run at `Manifest.timed_at`; None: not timed
    convolution: bool = False  # whatever TensorRT calls it: a 1 × 1 convolution may be a matrix product


class GateRecord(Record):
    """What the gate at the end of a build said."""

    passed: bool | None  # None: it was not run, or its figures are only shown
    reason: str = ""  # why it was not run, or only shown
    judged: tuple[str, ...] = ()  # "onnxruntime-typed", and "tensorrt" where the plan itself was run
    pictures: int = 0
    origin: str = ""  # of the pictures
    worst: str = ""  # the figures that are nearest to their limits


class Manifest(Record):
    """What is known about a plan; stands in `<plan>.json` and is checked before deserialising.

    The file has one key more, `digest`, over all others, so that an edit shows as a change of plan or graphs does.
    A manifest that was written before there was one is read all the same.
    """

    schema_version: Literal[1] = 1
    flavour: Literal["tensorrt", "tensorrt_rtx"]
    flavour_version: str
    gpu: Gpu | None  # None: built without a GPU
    targets: tuple[str, ...]  # compute capabilities, for TensorRT-RTX: ("8.9",)
    profiles: tuple[ProfileRecord, ...]
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    precision: Precision  # asked for
    layers: dict[
        str, int
    ]  # of the network as parsed, where its types bind; else of the engine: {"int8": 53, "fp32": 12}
    convolutions: dict[str, int] = {}  # the convolutions among them, {"int8": 53}
    int8_macs: float = 0.0  # share of the multiply-adds that the typed graph has in int8, 0 to 1
    inspected: dict[str, int] | None = None  # layers of the finished engine that have weights; None: nothing ran it
    engine_layers: tuple[LayerRecord, ...] = ()  # of the finished engine, in order; (): nothing could load it
    timed_at: tuple[int, ...] | None = None  # input shape at which `engine_layers` were timed
    optimization_level: int | None = None  # None: TensorRT's default
    hardware_compat: bool = False  # runs on every GPU of Ampere and newer
    version_compat: bool = False  # runs with later TensorRTs of the same major version
    workspace_bytes: int | None
    onnx: str  # float32 ONNX, file name in the same folder or a path relative to it
    onnx_sha256: str
    typed: str  # typed ONNX, likewise
    typed_sha256: str
    plain_sha256: str | None = None  # as in TypedRecord
    kept: tuple[KeptNode, ...] = ()  # nodes of the typed ONNX that stay higher
    calibration: Calibration | None
    gate: GateRecord | None = None  # None: the build did not ask
    plan_sha256: str
    plan_bytes: int | None = None
    fingerprint: str  # of everything that went into the plan
    model: ModelInfo
    command: str
    created: str  # ISO 8601, UTC
    seconds: float
    version: str  # of face3d-trt

    def to_json(self) -> bytes:
        """What `write` writes."""
        return sealed(json.loads(super().to_json()))

    @classmethod
    def _parse(cls, text: str, path: Path) -> Manifest:
        content = _content(text)
        if content is not None and (found := content.pop(DIGEST, None)) is not None and found != _digest(content):
            raise PlanError(
                f"{path} was edited since build wrote it: its digest is that of another content",
                allowed="the file as build wrote it",
                run=f"{content.get('command') or _BUILD}    # writes it again, with the plan",
            )
        return cls.model_validate_json(text if content is None else json.dumps(content))


def sealed(content: dict[str, Any]) -> bytes:
    """A manifest's content as its file has it, with a digest over it, which is no protection against forgery."""
    content = {key: value for key, value in content.items() if key != DIGEST}
    return (json.dumps({**content, DIGEST: _digest(content)}, indent=2) + "\n").encode()


def is_sealed(path: Path) -> bool:
    """Whether a manifest that can be read has a digest: earlier versions wrote none."""
    return DIGEST in (_content(path.read_text(encoding="utf-8")) or {})


def _content(text: str) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _digest(content: dict[str, Any]) -> str:
    """Over the content, whatever the order of its keys and the space between them."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def manifest_path(plan: Path) -> Path:
    """`engines/a.plan` → `engines/a.plan.json`."""
    return Path(f"{plan}.json")  # with_name would not take "." or "/"


def plan_name(path: Path) -> Path:
    """The nearest path that `build -o` takes: `x.plan` for `x.plan.txt`, `x.engine.plan` for `x.engine`."""
    if os.path.isdir(path):  # of os.path, as a Path's own raises at names that are too long
        return path / _ANY
    stem = path.name if path.suffix == ".plan" else path.name.partition(".plan")[0].strip(".")
    named = f"{stem.removesuffix('.plan')}.plan"
    fits = stem and len(os.fsencode(manifest_path(Path(named)))) <= _LONGEST
    return path.with_name(named) if fits else path.parent / _ANY
