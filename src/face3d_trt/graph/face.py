"""The morphable model beside the ONNX file, for machines that have neither torch nor the model's directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import face3d_trt
from face3d_trt.decode import Decoder
from face3d_trt.files import sha256_file
from face3d_trt.model.load import CHECKPOINT, MORPHABLE, read_configuration, read_morphable, read_weights
from face3d_trt.model.morphable import MorphableModel
from face3d_trt.model.resolve import resolve_model
from face3d_trt.reconstruct.facefile import SUFFIX, FaceFile, FaceRecord
from face3d_trt.reconstruct.uv import choose_uv

UVS = "assets/bfm_uvs2.npy"  # in a model directory


def face_file_beside(onnx: Path) -> Path:
    """`engines/a.onnx` → `engines/a.face.npz`."""
    return onnx.with_name(onnx.name.removesuffix(".onnx") + SUFFIX)


def face_file_of(model: str | Path) -> FaceFile | None:
    """The face file of a model directory or ModelScope id; None where the model has no morphable model.

    Raises:
        ModelError: A file of the directory is damaged.
        MissingError: No such model can be had here, or a package of the extra `export` is missing.
    """
    resolved = resolve_model(model)
    directory = resolved.directory
    if not (directory / MORPHABLE).exists():
        return None
    decoder = Decoder.of(MorphableModel(read_morphable(directory / MORPHABLE)))
    uv, origin = choose_uv(_read_uv(directory / UVS), decoder.mean_shape.reshape(-1, 3), decoder.triangles)
    record = FaceRecord(
        source=resolved.source,
        revision=resolved.revision,
        weights=read_weights(read_configuration(directory), directory),
        checkpoint_sha256=sha256_file(directory / CHECKPOINT),
        uv=origin,
        version=face3d_trt.__version__,
    )
    return FaceFile(record, decoder, uv)


def _read_uv(path: Path) -> npt.NDArray[Any] | None:
    """The model's map; None where there is none that can be read, which a cylinder then replaces."""
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None
