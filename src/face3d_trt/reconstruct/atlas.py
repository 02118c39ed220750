"""What each texel shows, the same for every face: a triangle and the weights of its corners.

Values of vertices are interpolated on a grid, which may be coarser than the texture, and enlarged to its size from
there: between two vertices they are linear anyway, and a face has some 190 vertices across.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.optional import require
from face3d_trt.reconstruct.raster import nearest_surface

if TYPE_CHECKING:
    from face3d_trt.reconstruct.raster import Surface

Array = npt.NDArray[Any]

PLACES_GRID = 512  # texels a side, at most, on which places in the photo are computed
COLOURS_GRID = 256  # and on which albedo and visibility are, which are smooth
REACH = 1.5  # texels of the grid beyond the rim that continue its triangle: interpolation reads them
PADDING = 1 / 64  # of the side: how far colours go on beyond the rim, for mip maps and filtering


@dataclass(frozen=True, eq=False)
class Atlas:
    """The grid under a texture.

    Attributes:
        size: Of the texture, texels a side.
        grid: Of the grid, likewise.
        mapped: (grid, grid) bool: where the surface is.
        padded: The same and PADDING around it.
        corners: (3, P) int32 vertices of the padded texels.
        weights: (3, P, 1) float32; they sum to 1 and reach below 0 beyond the rim.
        cells: (P,) indices of the padded texels in the flattened grid.
    """

    size: int
    grid: int
    mapped: Array
    padded: Array
    corners: Array
    weights: Array
    cells: Array

    def spread(self, values: Array) -> Array:
        """Values of vertices (V, channels) float32 on the grid: (grid, grid, channels), 0 outside of `padded`."""
        total = np.take(values, self.corners[0], axis=0)
        total *= self.weights[0]
        for corner in (1, 2):
            part = np.take(values, self.corners[corner], axis=0)
            part *= self.weights[corner]
            total += part
        spread = np.zeros((self.grid * self.grid, values.shape[1]), np.float32)
        spread[self.cells] = total
        return spread.reshape(self.grid, self.grid, -1)


def make_atlas(uv: Array, triangles: Array, size: int, grid: int) -> Atlas:
    """The atlas of one texture size.

    Args:
        uv: (V, 2), u to the right, v upwards, 0 to 1.
        triangles: (F, 3).
        size: Of the texture, texels a side.
        grid: Of the grid, likewise.
    """
    placed = np.stack([uv[:, 0], 1 - uv[:, 1]], 1).astype(np.float64) * grid
    surface = nearest_surface(placed, np.zeros(len(uv)), triangles, grid, grid)
    mapped = np.zeros((grid, grid), bool)
    mapped.flat[surface.pixel] = True
    cells, nearest = _around(surface, mapped, max(REACH, PADDING * grid))
    corners = triangles[surface.triangle[nearest]]
    weights = surface.weights[nearest]
    row, column = np.divmod(cells, grid)
    own_row, own_column = np.divmod(surface.pixel[nearest], grid)
    beyond = np.hypot(row - own_row, column - own_column)
    carried = np.flatnonzero((beyond > 0) & (beyond <= REACH))
    weights[carried] = _weights(placed[corners[carried]], np.stack([column, row], 1)[carried] + 0.5)
    padded = np.zeros((grid, grid), bool)
    padded.flat[cells] = True
    return Atlas(
        size=size,
        grid=grid,
        mapped=mapped,
        padded=padded,
        corners=np.ascontiguousarray(corners.T.astype(np.int32)),
        weights=np.ascontiguousarray(weights.T[..., None]),
        cells=cells,
    )


def _around(surface: Surface, mapped: Array, reach: float) -> tuple[Array, Array]:
    """Texels up to `reach` from the surface, and for each the index of the nearest that is on it."""
    cv2 = require("cv2", "reconstruct", "baking textures")
    distance, label = cv2.distanceTransformWithLabels(
        (~mapped).astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
    )
    owner = np.zeros(label.max() + 1, np.int64)
    owner[label.ravel()[surface.pixel]] = np.arange(len(surface.pixel))
    cells = np.flatnonzero(distance.ravel() <= reach)
    return cells, owner[label.ravel()[cells]]


def _weights(corners: Array, at: Array) -> Array:
    """Weights of triangles' corners (P, 3, 2) at points (P, 2), also outside of them: (P, 3)."""
    a, b, c = (corners[:, i] for i in range(3))
    parts = [_cross(q - at, r - at) for q, r in ((b, c), (c, a), (a, b))]
    area = _cross(b - a, c - a)
    found = np.stack(parts, 1) / np.where(area == 0, 1, area)[:, None]
    return np.where((area == 0)[:, None], np.float32(1 / 3), found).astype(np.float32)


def _cross(u: Array, v: Array) -> Array:
    return np.asarray(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0])
