"""Which model is benched: its directory, its float32 graph and its plans, which have to be of one checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from face3d_trt.errors import Face3DError, GraphError, UsageError
from face3d_trt.files import sha256_file
from face3d_trt.model.resolve import resolve_model
from face3d_trt.names import DEFAULT_ONNX
from face3d_trt.parity.places import find_model
from face3d_trt.records import Manifest, ModelInfo, manifest_path
from face3d_trt.runtime.onnxfile import metadata

if TYPE_CHECKING:
    from face3d_trt.bench.options import BenchOptions

_ENGINES = Path("engines")
_CHECKPOINT, _CONFIGURATION = "pytorch_model.pt", "configuration.json"  # of a model directory
_FULL_WIDTH = 64
_KEY = "face3d"  # of the model's facts, in a graph's metadata and in a stand-in's configuration


@dataclass(frozen=True)
class Subject:
    """What is there of the model.

    Attributes:
        directory: Its checkpoint's; None: not here.
        onnx: The float32 graph; None: not here.
        plans: With their manifests.
        facts: Of plans or graph; None: neither is there.
        sha256: Of the checkpoint.
        name: For people.
    """

    directory: Path | None
    onnx: Path | None
    plans: tuple[tuple[Path, Manifest], ...]
    facts: ModelInfo | None
    sha256: str | None
    name: str


def find_subject(options: BenchOptions) -> Subject:
    """Look for what the options name, or for what `export` and `build` leave.

    Raises:
        UsageError: They are not of one checkpoint; nothing is there at all; or a file is not what it should be.
        MissingError: A ModelScope id cannot be had.
    """
    plans = tuple((path, Manifest.read(manifest_path(path))) for path in options.plans or _left_by_build(options))
    onnx = options.onnx or (Path(DEFAULT_ONNX) if Path(DEFAULT_ONNX).is_file() else None)
    facts = {str(path): manifest.model for path, manifest in plans}
    if onnx is not None:
        facts[str(onnx)] = read_facts(onnx)
    directory = _directory(options, facts)
    hashes = {name: info.checkpoint_sha256 for name, info in facts.items()}
    if directory is not None:
        hashes[str(directory)] = sha256_file(directory / _CHECKPOINT)
    _one_checkpoint(hashes)
    if not hashes:
        raise UsageError(
            "there is nothing to bench",
            allowed="--model DIRECTORY for torch, --onnx FILE for ONNX Runtime, --plan FILE for TensorRT",
            run="face3d-trt export --model MODEL    # writes the graph, which names the model",
        )
    known = next(iter(facts.values()), None)
    return Subject(directory, onnx, plans, known, next(iter(hashes.values())), _name(known, directory))


def read_facts(path: Path) -> ModelInfo:
    """The model's facts in an ONNX file of ours; the package onnx is not needed.

    Raises:
        GraphError: It is missing, or not one of ours.
    """
    wanted, run = "an ONNX file of face3d-trt", "face3d-trt export --model MODEL"
    try:
        return ModelInfo.model_validate_json(metadata(path.read_bytes())[_KEY])
    except OSError as error:
        raise GraphError(f"{path} cannot be read: {error.strerror}", allowed=wanted, run=run) from error
    except (ValueError, KeyError, ValidationError) as error:
        raise GraphError(f"{path} was not written by this version of face3d-trt", allowed=wanted, run=run) from error


def _left_by_build(options: BenchOptions) -> list[Path]:
    if options.device == "cpu":
        return []
    return [plan for plan in sorted(_ENGINES.glob("*.plan")) if manifest_path(plan).is_file()]


def _directory(options: BenchOptions, facts: dict[str, ModelInfo]) -> Path | None:
    if options.model is not None:
        return resolve_model(options.model).directory
    for name, info in facts.items():
        try:
            found = find_model(info, Path(name))
            directory = None if found is None else resolve_model(found).directory
        except Face3DError:
            continue
        if directory is not None and (directory / _CHECKPOINT).is_file():
            return directory
    return None


def _one_checkpoint(hashes: dict[str, str]) -> None:
    (first, digest), *others = hashes.items() or [("", "")]
    for name, other in others:
        if other != digest:
            raise UsageError(
                f"{name} is of another model than {first}: checkpoint {other[:12]}… and {digest[:12]}…",
                allowed="a model, a graph and plans of one checkpoint",
            )


def _name(facts: ModelInfo | None, directory: Path | None) -> str:
    if facts is not None:
        if facts.weights == "checkpoint":
            return facts.source if facts.revision is None else f"{facts.source}@{facts.revision}"
        return f"stand-in, {'full' if facts.width == _FULL_WIDTH else 'small'}, {facts.weights} weights"
    assert directory is not None  # one of them is there
    try:
        configuration = json.loads((directory / _CONFIGURATION).read_text(encoding="utf-8"))
        standin = configuration.get("face3d_trt")
    except (OSError, ValueError, AttributeError):
        standin = None
    if isinstance(standin, dict):
        return f"stand-in, {standin.get('standin')}, {standin.get('weights')} weights"
    return directory.name
