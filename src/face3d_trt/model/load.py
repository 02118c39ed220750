"""The model directory, read strictly: what does not fit is named, never skipped.

File names, keys and shapes: modelscope `models/cv/face_reconstruction` (facerecon_model.py, bfm.py, utils.py).
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from face3d_trt.errors import ModelError
from face3d_trt.files import sha256_file
from face3d_trt.model.morphable import MorphableArrays, MorphableModel
from face3d_trt.model.network import FULL_WIDTH, ReconNet, width_of
from face3d_trt.model.resolve import resolve_model
from face3d_trt.optional import require
from face3d_trt.records import Weights

if TYPE_CHECKING:
    from torch import Tensor

CONFIGURATION = "configuration.json"
CHECKPOINT = "pytorch_model.pt"
NETWORK_KEY = "net_recon"
MORPHABLE = "assets/BFM_model_front.mat"
LANDMARKS = "assets/similarity_Lm3D_all.mat"
TASK = "face-reconstruction"
STANDIN_KEY = "face3d_trt"  # in configuration.json of a stand-in
_WANTED = "the layout of revision v2.0.0-HRN: configuration.json, pytorch_model.pt, assets/*.mat"
_GET = "face3d-trt export --model damo/cv_resnet50_face-reconstruction    # takes the pinned revision"


@dataclass(frozen=True)
class FaceModel:
    """A loaded model, float32, in evaluation mode, on the CPU.

    Attributes:
        network: Pictures (batch, 3, height, width) float32 RGB 0..1 -> coefficients (batch, 257).
        morphable: Coefficients -> vertex and texture; None where only the network was asked for.
        template: The five 3D points of alignment, (5, 3) float64, 1.0 = 100 mm: eyes, nose tip, mouth corners.
        source: The directory or ModelScope id, as given.
        revision: Of a ModelScope id.
        weights: Where the network's weights come from.
        checkpoint_sha256: Of pytorch_model.pt.
    """

    network: ReconNet
    morphable: MorphableModel | None
    template: NDArray[np.float64]
    source: str
    revision: str | None
    weights: Weights
    checkpoint_sha256: str


def load_model(model: str | Path, *, morphable: bool | None = True) -> FaceModel:
    """Load a model directory or ModelScope id.

    Args:
        model: See `resolve_model`.
        morphable: Read the morphable model too; without it the .mat file of the BFM may be absent. None: read it where
            that file is there.

    Raises:
        ModelError: A file is missing, damaged, of another layout, or an array has another shape.
        MissingError: No such model can be had here.
    """
    resolved = resolve_model(model)
    directory = resolved.directory
    configuration = read_configuration(directory)
    state = read_network(directory / CHECKPOINT)
    if morphable is None:
        morphable = (directory / MORPHABLE).exists()
    return FaceModel(
        network=build_network(state, directory / CHECKPOINT),
        morphable=MorphableModel(read_morphable(directory / MORPHABLE)) if morphable else None,
        template=read_template(directory),
        source=resolved.source,
        revision=resolved.revision,
        weights=read_weights(configuration, directory),
        checkpoint_sha256=sha256_file(directory / CHECKPOINT),
    )


def read_configuration(directory: Path) -> dict[str, Any]:
    """configuration.json, after the directory's layout was recognised.

    Raises:
        ModelError: Another layout (the v1 model, the head model), another task, or no such file.
    """
    names = {path.name for pattern in ("*", "assets/*") for path in directory.glob(pattern)}
    if (directory / "assets" / "3dmm").exists() or (directory / "3dmm").exists():
        raise ModelError(f"{directory} is the head-reconstruction model, another network", allowed=_WANTED, run=_GET)
    if "face_model_for_maas.mat" in names:
        raise ModelError(f"{directory} has the v1 layout (face_model_for_maas.mat)", allowed=_WANTED, run=_GET)
    path = directory / CONFIGURATION
    _exists(path)
    try:
        configuration = json.loads(path.read_text(encoding="utf-8"))
        task = configuration.get("task")
    except (ValueError, AttributeError) as error:
        raise ModelError(f"{path} is not a JSON object: {error}", allowed=_WANTED, run=_GET) from error
    if task != TASK:
        raise ModelError(f"{path} says task {task!r}", allowed=f"task {TASK!r}", run=_GET)
    return configuration  # type: ignore[no-any-return]


def read_weights(configuration: Mapping[str, Any], directory: Path) -> Weights:
    """Where the weights come from: a stand-in says so in its configuration, everything else is a checkpoint.

    Raises:
        ModelError: The configuration says something unknown.
    """
    facts = configuration.get(STANDIN_KEY, {"weights": "checkpoint"})
    weights = facts.get("weights") if isinstance(facts, Mapping) else facts
    if weights not in get_args(Weights):
        raise ModelError(
            f"{directory / CONFIGURATION}: {STANDIN_KEY} says weights {weights!r}",
            allowed=", ".join(get_args(Weights)),
            run="face3d-trt standin NEW_DIRECTORY",
        )
    return cast("Weights", weights)


def read_network(path: Path) -> dict[str, Tensor]:
    """The network's state dict, under upstream's names.

    Takes the whole checkpoint (key `net_recon`), a bare state dict, and `module.`-prefixed keys of either.

    Raises:
        ModelError: Missing, truncated, not a checkpoint, or without the network.
    """
    import torch

    _exists(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, zipfile.BadZipFile, KeyError, ValueError) as error:
        reason = _reason(error)
        raise ModelError(
            f"{path} ({path.stat().st_size:,} bytes) cannot be read as a checkpoint; "
            f"it is truncated or not one: {reason}",
            allowed="the file as published, tensors only (it is loaded with weights_only=True)",
            run=_GET,
        ) from error
    state = content.get(NETWORK_KEY, content) if isinstance(content, Mapping) else content
    if isinstance(state, Mapping):
        state = {str(key).removeprefix("module."): value for key, value in state.items()}
    if not isinstance(state, dict) or "backbone.conv1.weight" not in state:
        found = ", ".join(sorted(map(str, content))[:6]) if isinstance(content, Mapping) else type(content).__name__
        raise ModelError(
            f"{path} holds no network: found {found}",
            allowed=f"a dict with {NETWORK_KEY!r}, or the network's state dict (backbone.*, final_layers.*)",
            run=_GET,
        )
    return state


def _reason(error: Exception) -> str:
    """Why torch refused a file, in few words; its own are about loading code, which we never do."""
    if isinstance(error, pickle.UnpicklingError) and "weights_only" in str(error).lower():
        return "it holds more than tensors (code or classes), which is not loaded"
    text = str(error).splitlines()[0] if str(error) else ""
    return text if " " in text else f"{type(error).__name__} {text}".strip()


def build_network(state: Mapping[str, Tensor], path: Path) -> ReconNet:
    """The network with these weights, in evaluation mode.

    Raises:
        ModelError: A key is missing, unknown, or has another shape; the first few are named.
    """
    import torch

    strange = [key for key, value in state.items() if not isinstance(value, torch.Tensor)]
    problems = [f"{key} is a {type(state[key]).__name__}, not a tensor" for key in strange]
    problems += [
        f"{key} has values that are not finite"
        for key, value in state.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not torch.isfinite(value).all()
    ]
    if problems:
        raise _unfit(path, problems)
    network = ReconNet(width_of(state))
    expected = network.state_dict()
    problems = [f"missing {key}" for key in expected if key not in state]
    problems += [f"unknown {key}" for key in state if key not in expected]
    problems += [
        f"{key} is {tuple(state[key].shape)}, not {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    problems += [
        f"{key} is {state[key].dtype}"
        for key, value in expected.items()
        if key in state and state[key].is_floating_point() != value.is_floating_point()
    ]
    if problems:
        raise _unfit(path, problems)
    network.load_state_dict(dict(state))
    return network.float().eval()


def _unfit(path: Path, problems: list[str]) -> ModelError:
    more = f" and {len(problems) - 4} more" if len(problems) > 4 else ""
    return ModelError(
        f"{path} does not fit the network: {'; '.join(problems[:4])}{more}",
        allowed=f"a ResNet50 trunk and seven heads with upstream's names, width {FULL_WIDTH} as published; finite",
        run=_GET,
    )


def read_morphable(path: Path) -> MorphableArrays:
    """The morphable model's arrays.

    Raises:
        ModelError: Missing, damaged, a key missing, or an array of another shape.
    """
    arrays = _read_mat(path)
    size = _array(arrays, "meanshape", path).size
    if size % 3:
        raise ModelError(f"{path}: meanshape has {size} values", allowed="three for every vertex", run=_GET)
    triangles = _array(arrays, "tri", path)
    shapes: dict[str, tuple[int, ...]] = {
        "meanshape": (1, size),
        "idBase": (size, 80),
        "exBase": (size, 64),
        "meantex": (1, size),
        "texBase": (size, 80),
        "tri": (len(triangles), 3),
        "point_buf": (size // 3, 8),
        "keypoints": (1, 68),
    }
    for key, shape in shapes.items():
        found = _array(arrays, key, path).shape
        if found != shape:
            raise ModelError(f"{path}: {key} has shape {found}", allowed=f"{shape}, after meanshape", run=_GET)

    def floats(key: str) -> NDArray[np.float32]:
        return np.ascontiguousarray(arrays[key], np.float32)

    def indices(key: str, top: int) -> NDArray[np.int64]:
        values = np.asarray(arrays[key]).astype(np.int64) - 1
        if values.min() < 0 or values.max() > top:
            raise ModelError(f"{path}: {key} points outside the mesh", allowed=f"1 to {top + 1}", run=_GET)
        return values

    return MorphableArrays(
        mean_shape=floats("meanshape").reshape(-1),
        identity_basis=floats("idBase"),
        expression_basis=floats("exBase"),
        mean_texture=floats("meantex").reshape(-1),
        texture_basis=floats("texBase"),
        triangles=indices("tri", size // 3 - 1),
        vertex_triangles=indices("point_buf", len(triangles)),
        keypoints=indices("keypoints", size // 3 - 1).reshape(-1),
    )


def read_template(directory: Path) -> NDArray[np.float64]:
    """The five 3D points that alignment fits: (5, 3), eyes, nose tip, mouth corners, from the 68 mean landmarks.

    Source of the choice of points: modelscope `face_reconstruction/utils.py`, `extract_5p` and `load_lm3d`.

    Raises:
        ModelError: The landmark file is missing or has another shape.
    """
    path = directory / LANDMARKS
    landmarks = _array(_read_mat(path), "lm", path).astype(np.float64)
    if landmarks.shape != (68, 3):
        raise ModelError(f"{path}: lm has shape {landmarks.shape}", allowed="(68, 3)", run=_GET)
    return np.stack(
        [landmarks[[36, 39]].mean(0), landmarks[[42, 45]].mean(0), landmarks[30], landmarks[48], landmarks[54]]
    )


def _exists(path: Path) -> None:
    if not path.is_file():
        raise ModelError(f"{path} is missing", allowed=_WANTED, run=_GET)


def _read_mat(path: Path) -> dict[str, Any]:
    io = require("scipy.io", "export", "reading .mat files")
    _exists(path)
    try:
        return io.loadmat(path)  # type: ignore[no-any-return]
    except Exception as error:  # scipy raises whatever its parser stumbles over
        raise ModelError(f"{path} cannot be read as a .mat file: {error}", allowed=_WANTED, run=_GET) from error


def _array(arrays: Mapping[str, Any], key: str, path: Path) -> NDArray[Any]:
    if key not in arrays:
        found = ", ".join(sorted(k for k in arrays if not k.startswith("__")))
        raise ModelError(f"{path} has no {key}; it has {found or 'nothing'}", allowed=_WANTED, run=_GET)
    return np.asarray(arrays[key])
