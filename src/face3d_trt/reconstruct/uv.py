"""Where the surface lies in the texture: the model's own UV coordinates, or a cylinder around the mean face.

u runs to the right and v upwards, both 0 to 1, as in OBJ; row 0 of the texture is v = 1. Upstream's model directory
brings them as `assets/bfm_uvs2.npy`. They are the same for every face.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_FOLDED = 0.05  # of the mapped area; above it the model's own map is not used
MARGIN = 0.015  # of the texture's side, around the cylinder
AXIS_BEHIND = 0.1  # of the face's depth, behind its rearmost point: where the cylinder's axis stands
ROUNDS = 400  # of relaxation, at most
RINGS = 3  # neighbours of a folded triangle that give way with it


@dataclass(frozen=True)
class UvQuality:
    """How well a map spreads a surface.

    Attributes:
        folded: Share of the mapped area in triangles that are turned over, where they cover others.
        stretch: Root mean square of the map's length ratio along its longer axis over its mean, by area; 1 is none.
        worst: The same ratio at the 99th percentile of the area.
        used: Share of the texture that is covered.
    """

    folded: float
    stretch: float
    worst: float
    used: float


def choose_uv(given: Array | None, mean: Array, triangles: Array) -> tuple[Array, Literal["model", "cylinder"]]:
    """The model's map where it is one, else a cylinder's.

    Args:
        given: What the model's directory has; None: nothing.
        mean: (V, 3), the mean face.
        triangles: (F, 3).

    Returns:
        (V, 2) float32, and whose it is.
    """
    usable = (
        given is not None
        and given.shape == (len(mean), 2)
        and np.issubdtype(given.dtype, np.floating)
        and bool(((given >= 0) & (given <= 1)).all())
        and measure_uv(given, mean, triangles).folded <= MAX_FOLDED
    )
    if given is not None and usable:
        return given.astype(np.float32), "model"
    return cylindrical_uv(mean, triangles), "cylinder"


def measure_uv(uv: Array, mean: Array, triangles: Array) -> UvQuality:
    """Folds and stretch of a map.

    Stretch as Sander et al. 2001, "Texture Mapping Progressive Meshes": singular values of the map from the texture to
    the surface; 1 would be a map that keeps lengths, up to one scale.

    Args:
        uv: (V, 2).
        mean: (V, 3).
        triangles: (F, 3).
    """
    area = _signed(uv, triangles)
    sign = np.sign(area.sum()) or 1.0
    p, q, r = (mean[triangles[:, i]].astype(np.float64) for i in range(3))
    solid = np.linalg.norm(np.cross(q - p, r - p), axis=1) / 2
    s, t = (uv[triangles].astype(np.float64)[..., axis] for axis in range(2))
    twice = np.where(area == 0, np.inf, 2 * area)[:, None]
    du = (
        p * (t[:, 1] - t[:, 2])[:, None] + q * (t[:, 2] - t[:, 0])[:, None] + r * (t[:, 0] - t[:, 1])[:, None]
    ) / twice
    dv = (
        p * (s[:, 2] - s[:, 1])[:, None] + q * (s[:, 0] - s[:, 2])[:, None] + r * (s[:, 1] - s[:, 0])[:, None]
    ) / twice
    a, b, c = (du * du).sum(1), (du * dv).sum(1), (dv * dv).sum(1)
    longest = np.sqrt(((a + c) + np.sqrt((a - c) ** 2 + 4 * b * b)) / 2)
    scale = np.sqrt(solid.sum() / np.abs(area).sum())
    order = np.argsort(longest)
    worst = longest[order][np.searchsorted(np.cumsum(solid[order]), 0.99 * solid.sum())]
    return UvQuality(
        folded=float(np.abs(area[area * sign <= 0]).sum() / np.abs(area).sum()),
        stretch=float(np.sqrt((longest**2 * solid).sum() / solid.sum()) / scale),
        worst=float(worst / scale),
        used=float(np.abs(area).sum()),
    )


def cylindrical_uv(mean: Array, triangles: Array) -> Array:
    """Unwrap the mean face from the front: the angle around a vertical axis, and the height.

    What folds (nostrils, lips, behind the ears) is pulled apart by moving vertices towards their neighbours' mean.

    Args:
        mean: (V, 3) y up, z towards the viewer.
        triangles: (F, 3).

    Returns:
        (V, 2) float32.
    """
    x, y, z = mean.astype(np.float64).T
    axis = z.min() - AXIS_BEHIND * np.ptp(z)
    angle = np.arctan2(x, z - axis)
    radius = np.median(np.hypot(x, z - axis))
    flat = _unfold(np.stack([angle * radius, y], 1), triangles)
    extent = np.ptp(flat, axis=0).max()
    centred = (flat - (flat.max(axis=0) + flat.min(axis=0)) / 2) / extent * (1 - 2 * MARGIN) + 0.5
    return np.asarray(centred, np.float32)


def _signed(uv: Array, triangles: Array) -> Array:
    """Signed areas of triangles in the map, (F,) float64."""
    a, b, c = (uv[triangles[:, i]].astype(np.float64) for i in range(3))
    return np.asarray(((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2)


def _unfold(flat: Array, triangles: Array) -> Array:
    """Move the vertices around folded triangles until none is folded, or ROUNDS are over; the rim stays."""
    sides = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    edges, uses = np.unique(np.sort(sides, axis=1), axis=0, return_counts=True)
    rim = np.zeros(len(flat), bool)
    rim[edges[uses == 1]] = True
    one, other = np.concatenate([edges, edges[:, ::-1]]).T
    neighbours = np.maximum(np.bincount(one, minlength=len(flat)), 1)[:, None]
    sign = np.sign(_signed(flat, triangles).sum())
    flat = flat.copy()
    for _ in range(ROUNDS):
        folded = triangles[_signed(flat, triangles) * sign <= 0]
        if not len(folded):
            break
        loose = np.zeros(len(flat), bool)
        loose[folded] = True
        for _ in range(RINGS):
            loose[one[loose[other]]] = True
        loose &= ~rim
        mean = np.stack([np.bincount(one, weights=flat[other, axis], minlength=len(flat)) for axis in (0, 1)], 1)
        flat[loose] = (mean / neighbours)[loose]
    return flat
