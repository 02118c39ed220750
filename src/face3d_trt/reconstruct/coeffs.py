"""The coefficient file: what the network said of a face, by name, and where in the photo that is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import face3d_trt
from face3d_trt.decode import CAMERA_Z, FOCAL_PX
from face3d_trt.names import CROP, GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from face3d_trt.reconstruct.decoder import Face, FaceDecoder
    from face3d_trt.reconstruct.texture import Baked

Array = npt.NDArray[Any]

SCHEMA = 1


def coeffs_file(
    decoder: FaceDecoder,
    face: Face,
    coeffs: Array,
    crop_from_photo: Array,
    photo: tuple[int, int],
    baked: Baked | None,
    facts: Mapping[str, Any],
) -> bytes:
    """JSON; every float32 is written so that it reads back as the same.

    Args:
        decoder: Of the face's model.
        face: The face.
        coeffs: (257,) float32.
        crop_from_photo: (2, 3).
        photo: Height and width, px.
        baked: The texture, if one was made.
        facts: What the caller knows of the source.
    """
    record = decoder.record
    content = {
        "schema_version": SCHEMA,
        "coefficients": {name: [_short(value) for value in coeffs[part]] for name, part in GROUPS.items()},
        "pose": {
            "head_to_world": np.vstack([np.column_stack([face.turn, face.place]), (0, 0, 0, 1)]).tolist(),
            "camera": {"z": CAMERA_Z, "focal_px": FOCAL_PX, "centre_px": CROP / 2 - 0.5, "unit_mm": 100},
        },
        "alignment": {
            "crop_from_photo": crop_from_photo.tolist(),
            "crop": [CROP, CROP],
            "photo": list(photo),  # height, width
        },
        "texture": None
        if baked is None
        else {
            "size": len(baked.pixels),
            "from_photo": round(baked.visible, 4),
            "photo_px_per_texel": round(baked.px_per_texel, 4),
            "uv": record.uv,
        },
        "model": {
            "source": record.source,
            "revision": record.revision,
            "weights": record.weights,
            "checkpoint_sha256": record.checkpoint_sha256,
            "vertices": len(decoder.uv),
        },
        "source": dict(facts),
        "version": face3d_trt.__version__,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace")  # bytes of a name that are no UTF-8: as JSON writes them, too


def read_coeffs(data: bytes) -> npt.NDArray[np.float32]:
    """The (257,) float32 of a coefficient file."""
    groups = json.loads(data)["coefficients"]
    return np.concatenate([np.array(groups[name], np.float32) for name in GROUPS])


def _short(value: np.float32) -> float:
    """The shortest decimal that reads back as the same float32."""
    return float(np.format_float_positional(value, unique=True, trim="0"))
