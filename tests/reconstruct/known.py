"""Photos of faces whose truth is known at every texel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.decode import pose
from face3d_trt.names import CROP, GROUPS
from face3d_trt.parity.portrait import visible

if TYPE_CHECKING:
    from face3d_trt.reconstruct.decoder import FaceDecoder

Colour = Callable[[np.ndarray], np.ndarray]  # UV (P, 2) -> RGB (P, 3), 0 to 255


def make_coeffs(yaw: float = 0.0, pitch: float = 0.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    coeffs = np.zeros(257, np.float32)
    coeffs[: GROUPS["texture"].stop] = rng.normal(0, 0.4, GROUPS["texture"].stop)
    coeffs[GROUPS["angle"]] = (pitch, yaw, 0.03)
    return coeffs


@dataclass(frozen=True, eq=False)
class Taken:
    """A photo whose truth is known."""

    photo: np.ndarray
    crop_from_photo: np.ndarray
    coeffs: np.ndarray


def take(decoder: FaceDecoder, coeffs: np.ndarray, colour: Colour, scale: int = 4, ground: int = 90) -> Taken:
    """A photo of `scale` px for each of the crop's, in which the face has the colours of `colour`.

    Drawn by the comparison's rasteriser, which shares no code with the reconstruction's.
    """
    points = pose(decoder.basis.shape(coeffs[None]), coeffs[None])[0]
    pixel, corners, weights = visible(points, decoder.triangles, scale)
    photo = np.full((CROP * scale, CROP * scale, 3), ground, np.uint8)
    uv = np.einsum("pk,pkc->pc", weights, decoder.uv[corners])
    photo.reshape(-1, 3)[pixel] = np.clip(np.rint(colour(uv)), 0, 255)
    shift = 0.5 / scale - 0.5
    return Taken(photo, np.array([[1 / scale, 0, shift], [0, 1 / scale, shift]]), coeffs)


def waves(cycles: float) -> Colour:
    """A pattern that is known at every UV coordinate: `cycles` over the whole texture, other ones in each channel."""

    def colour(uv: np.ndarray) -> np.ndarray:
        u, v = 2 * np.pi * cycles * uv.T
        return 128 + 60 * np.stack([np.sin(u) * np.cos(v), np.cos(u + 1) + 0 * v, np.sin(v + 0.6 * u)], -1)

    return colour


def texels(size: int) -> np.ndarray:
    """UV coordinates of the texels' centres, (size, size, 2)."""
    axis = (np.arange(size) + 0.5) / size
    u, v = np.meshgrid(axis, 1 - axis)
    return np.stack([u, v], -1)
