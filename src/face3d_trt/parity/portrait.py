"""Where colours are compared: the mean face as the model's camera sees it from the front, one surface point a pixel.

Which point a pixel shows depends on the mean face alone, so two textures are compared at the same points of the skin,
whatever their poses and shapes. A UV map would do the same; this needs no file beside the morphable model, and shows
what a viewer looks at, at the size at which the network saw it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.decode import CAMERA_Z, Decoder, project
from face3d_trt.names import CROP

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = npt.NDArray[Any]
LARGE = 16  # px of a triangle's box along either side, above which it is not drawn together with others
Hits = tuple[Array, Array, Array, Array]  # pixel, depth, triangle, weights of its corners


class Portrait:
    """The portrait of one morphable model.

    Args:
        decoder: Its arrays.

    Attributes:
        mask: (height, width) bool: where the face is, in the box around it.
    """

    def __init__(self, decoder: Decoder) -> None:
        mean = decoder.mean_shape.reshape(-1, 3).astype(np.float64)
        pixels, corners, self._weights = visible(mean, decoder.triangles)
        self._corners = corners
        rows, columns = np.divmod(pixels, CROP)
        self._rows, self._columns = rows - rows.min(), columns - columns.min()
        self.mask = np.zeros((self._rows.max() + 1, self._columns.max() + 1), bool)
        self.mask[self._rows, self._columns] = True

    def pixels(self, colours: Array) -> Array:
        """Vertex colours (batch, V, 3) at the pixels of the face: (batch, P, 3), clamped to 0..1."""
        found = sum(self._weights[:, [i]] * colours[:, self._corners[:, i]] for i in range(3))
        return np.clip(found, 0, 1)

    def touched(self, vertices: Array) -> Array:
        """The pixels that show any of the vertices (batch, V) bool: (batch, P) bool."""
        return np.asarray(vertices[:, self._corners].any(axis=-1))

    def pictures(self, pixels: Array) -> Array:
        """What `pixels` gives as pictures: (batch, height, width, 3), black around the face."""
        pictures = np.zeros((len(pixels), *self.mask.shape, 3), pixels.dtype)
        pictures[:, self._rows, self._columns] = pixels
        return pictures


def visible(points: Array, triangles: Array, scale: int = 1) -> tuple[Array, Array, Array]:
    """The surface point at the centre of every pixel of the crop that shows one.

    Args:
        points: (V, 3) in world space.
        triangles: (F, 3).
        scale: Pixels for each of the crop's, along either side.

    Returns:
        Index of the pixel in the flattened crop (P,), ascending; the corners of the nearest triangle there (P, 3); and
        their weights (P, 3), which sum to 1.
    """
    placed, depth = project(points) * scale, CAMERA_Z - points[:, 2]
    found = [hit for hit in _hits(placed[triangles], depth[triangles], CROP * scale) if len(hit[0])]
    if not found:
        return np.empty(0, np.intp), np.empty((0, 3), triangles.dtype), np.empty((0, 3), np.float32)
    pixel, distance, triangle, weights = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((distance, pixel))
    pixel, first = np.unique(pixel[order], return_index=True)
    return pixel, triangles[triangle[order][first]], weights[order][first].astype(np.float32)


def boxes(placed: Array, side: int) -> tuple[Array, Array]:
    """The pixels that triangles may cover.

    Args:
        placed: (F, 3, 2) px.
        side: Of the picture, in its pixels.

    Returns:
        Column and row of the upper left (F, 2), and how many columns and rows (F, 2): none where it is outside.
    """
    low = np.clip(np.ceil(placed.min(axis=1) - 0.5), 0, side).astype(int)
    high = np.clip(np.floor(placed.max(axis=1) - 0.5), -1, side - 1).astype(int)
    return low, np.maximum(high - low + 1, 0)


def _hits(placed: Array, depth: Array, side: int) -> Iterator[Hits]:
    """What triangles cover: those of many pixels one by one, the others together for each pixel of their boxes.

    Args:
        placed: (F, 3, 2) px.
        depth: (F, 3).
        side: Of the picture, in its pixels.
    """
    low, extent = boxes(placed, side)
    a, b, c = (placed[:, corner] for corner in range(3))
    area = _cross(b - a, c - a)
    there = area != 0

    def cover(chosen: Array, at: Array) -> Hits:
        """The triangles `chosen`, (P,), at the centres of the pixels `at`, (P, 2)."""
        centre = at + 0.5
        parts = [_cross(q[chosen] - centre, r[chosen] - centre) for q, r in ((b, c), (c, a), (a, b))]
        weights = np.stack(parts, 1) / area[chosen, None]
        hit = (weights >= 0).all(axis=1)
        nearest = (weights[hit] * depth[chosen[hit]]).sum(axis=1)
        return at[hit, 1] * side + at[hit, 0], nearest, chosen[hit], weights[hit]

    large = (extent > LARGE).any(axis=1)
    for index in np.flatnonzero(large & there):
        columns, rows = extent[index]
        offsets = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(-1, 2)
        yield cover(np.full(len(offsets), index), low[index] + offsets)
    for row, column in np.ndindex(LARGE, LARGE):
        chosen = np.flatnonzero((extent > (column, row)).all(axis=1) & there & ~large)
        if len(chosen):
            yield cover(chosen, low[chosen] + (column, row))


def _cross(u: Array, v: Array) -> Array:
    return np.asarray(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0])
