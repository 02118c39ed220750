"""How far the photo is to be trusted at each texel: not where the face hides it, turns away, or leaves the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.optional import require

if TYPE_CHECKING:
    from face3d_trt.reconstruct.atlas import Atlas

Array = npt.NDArray[Any]

BUFFER = 256  # cells of the depth buffer along the face's longer side: 0.8 mm
POINTS = 100_000  # on the surface: three for each cell that the face covers
FAR = 1e6
BIAS = 0.015  # 1.0 = 100 mm: a surface does not hide what lies closer behind it
CELLS = 2.8  # by how many cells a slope may be misplaced: two along either side
TURNED, FULL = 0.10, 0.42  # cosines to the camera: 84 degrees, where the photo says nothing, and 65, where it says all
FEATHER = 1 / 40  # of the texture's side, from what is not seen to full trust: 5 mm


def trust(values: Array, atlas: Atlas, buffer: Buffer, photo: tuple[int, int]) -> Array:
    """Weight of the photo on the grid: (grid, grid) float32, 0 to 1, without steps.

    Args:
        values: (grid, grid, 4) float32: x and y in px of the photo, distance from the camera (1.0 = 100 mm), cosine
            between the normal and the direction to the camera.
        atlas: Where texels are.
        buffer: What is nearest to the camera.
        photo: Height and width of the photo.
    """
    cv2 = require("cv2", "reconstruct", "baking textures")
    height, width = photo
    x, y, depth, facing = (np.ascontiguousarray(channel) for channel in np.moveaxis(values, -1, 0))
    seen = facing > TURNED
    seen &= (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
    seen &= depth <= buffer.at(values[..., :2]) + buffer.tolerance(facing)
    smooth = cv2.medianBlur((seen | ~atlas.padded).astype(np.uint8), 5)  # single texels come from the buffer's cells
    from_hidden = cv2.distanceTransform(smooth, cv2.DIST_L2, 3)
    weight = ramp(from_hidden, 0.5, FEATHER * atlas.grid) * ramp(facing, TURNED, FULL)
    weight[~atlas.padded] = 0
    return weight


def ramp(value: Array, low: float, high: float) -> Array:
    """Smooth step from 0 at `low` to 1 at `high`."""
    t = np.clip((value - np.float32(low)) * np.float32(1 / (high - low)), 0, 1)
    return np.asarray(t * t * (3 - 2 * t))


def bounds(points: Array) -> tuple[Array, Array]:
    """Least and largest of each coordinate: (N, 2) -> two of (2,)."""
    columns = np.ascontiguousarray(points.T)  # NumPy reduces along rows twenty times as fast
    return columns.min(axis=1), columns.max(axis=1)


class Scatter:
    """Points that lie so densely on a mesh that they stand for its surface: its vertices, and some in each triangle.

    Args:
        triangles: (F, 3).
        vertices: Their number.
    """

    def __init__(self, triangles: Array, vertices: int) -> None:
        rows = 1
        while len(triangles) * rows * (rows + 1) // 2 + vertices < POINTS:
            rows += 1
        grid = [((i + 1 / 3) / rows, (j + 1 / 3) / rows) for i in range(rows) for j in range(rows - i)]
        self._weights = np.array([(1 - u - v, u, v) for u, v in grid], np.float32)
        self._corners = np.ascontiguousarray(triangles.T)

    def spread(self, values: Array) -> Array:
        """Values of the vertices (V, channels) float32 at the points: (P, channels)."""
        corners = [np.take(values, corner, axis=0) for corner in self._corners]
        inner = [sum(w * c for w, c in zip(weights, corners, strict=True)) for weights in self._weights]
        return np.concatenate([values, *inner])


class Buffer:
    """Distance of the nearest surface, over the part of the photo where the face is.

    Args:
        place: (V, 2) px of the photo.
        depth: (V,) distance from the camera.
        scatter: Of the mesh.
        unit_px: 100 mm in px of the photo, roughly.
    """

    def __init__(self, place: Array, depth: Array, scatter: Scatter, unit_px: float) -> None:
        cv2 = require("cv2", "reconstruct", "baking textures")
        low, high = bounds(place)
        self._scale = BUFFER / float((high - low).max())
        self._low = low
        width, height = (int(cells) for cells in np.ceil((high - low) * self._scale) + 1)
        points = scatter.spread(np.column_stack([(place - low) * self._scale, depth]).astype(np.float32))
        cells = points[:, 1].astype(np.int32) * width + points[:, 0].astype(np.int32)
        nearest = np.full(height * width, FAR, np.float32)
        np.minimum.at(nearest, cells, points[:, 2])
        # A cell is hidden by its neighbours too, and one that no point fell into has their distance.
        self._depth = cv2.erode(nearest.reshape(height, width), np.ones((3, 3), np.uint8))
        self._cell = CELLS / self._scale / unit_px

    def at(self, place: Array) -> Array:
        """The distance at px of the photo: (height, width, 2) float32 -> (height, width)."""
        cv2 = require("cv2", "reconstruct", "baking textures")
        cells = (place - self._low.astype(np.float32)) * np.float32(self._scale) - np.float32(0.5)
        return np.asarray(cv2.remap(self._depth, cells, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE))

    def tolerance(self, facing: Array) -> Array:
        """How much further away a texel may be and still be what is nearest: more where the surface slopes."""
        cosine = np.clip(facing, 0.1, 1)
        return np.asarray(np.float32(BIAS) + np.float32(self._cell) * np.sqrt(1 - cosine * cosine) / cosine)
