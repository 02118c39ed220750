"""Triangles to pixels in numpy: which triangle is nearest at the centre of each pixel.

Every triangle is tried at the pixels of the box around it, all triangles at once. That suits meshes of many small
triangles, as a face of 70,000 in a few hundred pixels is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TRIALS = 1 << 21  # pixels tried at a time, to bound memory; 200 MB
EDGE = -1e-5  # weights down to here count as inside, so that no pixel falls between two neighbours


@dataclass(frozen=True, eq=False)
class Surface:
    """What is seen at P pixels.

    Attributes:
        pixel: (P,) indices into the flattened picture, ascending.
        triangle: (P,) which one is there.
        weights: (P, 3) float32 of its corners; they sum to 1.
    """

    pixel: Array
    triangle: Array
    weights: Array


def nearest_surface(placed: Array, depth: Array, triangles: Array, height: int, width: int) -> Surface:
    """The nearest triangle at every pixel that has one.

    Args:
        placed: (V, 2) px, (0, 0) the upper left corner of the picture, the first pixel's centre at (0.5, 0.5).
        depth: (V,) distance from the viewer.
        triangles: (F, 3).
        height: Of the picture, px.
        width: Likewise.
    """
    found = list(_hits(placed, depth, triangles, height, width))
    if not found:
        return Surface(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 3), np.float32))
    pixel, triangle, weights, distance = (np.concatenate(part) for part in zip(*found, strict=True))
    nearest = np.full(height * width, np.inf, np.float32)
    np.minimum.at(nearest, pixel, distance)
    first = np.flatnonzero(distance == nearest[pixel])
    winner = np.full(height * width, -1, np.int64)
    winner[pixel[first]] = first
    pixel = np.flatnonzero(winner >= 0)
    chosen = winner[pixel]
    return Surface(pixel, triangle[chosen], weights[chosen])


def _hits(
    placed: Array, depth: Array, triangles: Array, height: int, width: int
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Pixel, triangle, weights and depth of every hit, in pieces."""
    corners = placed[triangles]  # (F, 3, 2)
    low = np.clip(np.ceil(corners.min(axis=1) - 0.5), 0, (width, height))
    extent = np.clip(np.floor(corners.max(axis=1) - 0.5), -1, (width - 1, height - 1)) - low + 1
    a, b, c = (corners[:, i] for i in range(3))
    area = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
    there = np.flatnonzero((extent > 0).all(axis=1) & (area != 0))
    low, extent = low[there].astype(np.int64), extent[there].astype(np.int64)
    planes = _planes(corners[there] - low[:, None] - 0.5, area[there])
    distances = depth[triangles[there]].astype(np.float32)
    ends = np.cumsum(extent[:, 0] * extent[:, 1])
    start = 0
    while start < len(there):
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + TRIALS)))
        yield _try(slice(start, stop), there, low, extent, planes, distances, width)
        start = stop


def _planes(corners: Array, area: Array) -> Array:
    """(F, 3, 3): of each corner, its weight's step to the right, its step down, and its value at the box's origin."""
    x, y = corners[..., 0], corners[..., 1]
    after, last = (1, 2, 0), (2, 0, 1)
    right, down = y[:, after] - y[:, last], x[:, last] - x[:, after]
    origin = x[:, after] * y[:, last] - y[:, after] * x[:, last]
    return (np.stack([right, down, origin], -1) / area[:, None, None]).astype(np.float32)


def _try(
    part: slice, there: Array, low: Array, extent: Array, planes: Array, distances: Array, width: int
) -> tuple[Array, Array, Array, Array]:
    """The hits of the triangles `part`."""
    counts = extent[part, 0] * extent[part, 1]
    owner = np.repeat(np.arange(part.start, part.stop), counts)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    row, column = np.divmod(step, extent[owner, 0])
    plane = planes[owner]
    weights = plane[..., 0] * column[:, None].astype(np.float32)
    weights += plane[..., 1] * row[:, None].astype(np.float32)
    weights += plane[..., 2]
    inside = np.flatnonzero(weights.min(axis=1) >= EDGE)
    owner, weights = owner[inside], weights[inside]
    pixel = (low[owner, 1] + row[inside]) * width + low[owner, 0] + column[inside]
    return pixel, there[owner], weights, np.einsum("pk,pk->p", weights, distances[owner])
