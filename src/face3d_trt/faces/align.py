"""Five-point alignment as the network was trained with it.

The formulas are those of Deep3DFaceRecon_pytorch's `util/preprocess.py` (Deng et al., CVPR Workshops 2019): scaled
orthography fitted to five points, then a crop in which the face has a fixed size. No rotation is taken out: the
network predicts the roll.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PIL import Image

from face3d_trt.errors import FaceError, ModelError
from face3d_trt.names import CROP

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels

Floats = npt.NDArray[np.float64]

PX_PER_UNIT = 102.0  # px per 100 mm in a crop of 224 px: baked into the training
POINTS = ("left eye", "right eye", "nose", "left mouth corner", "right mouth corner")  # as seen in the picture

_BICUBIC_REACH = 2  # px on either side, of the coarser of the two grids
_MIN_SPREAD_PX = 4.0  # below it the rounding of the points exceeds the face
_MIN_FLATNESS = 0.05  # second to first singular value of the centred points; a full profile has 0.3
_BEHIND = -0.3  # cosine between the fitted view and the face's front


@dataclass(frozen=True, eq=False)
class Aligned:
    """A face cut out of a photo.

    Points are pixel coordinates (x right, y down) with the centre of the first pixel at (0, 0).

    Attributes:
        crop: (size, size, 3) uint8 RGB; black where the photo has nothing.
        scale: px of the crop per px of the photo, horizontally and vertically (the resized photo has whole pixels).
        offset: Left and upper edge of the crop in the resized photo, px; may be negative.
    """

    crop: Pixels
    scale: tuple[float, float]
    offset: tuple[int, int]

    @property
    def crop_from_photo(self) -> Floats:
        """(2, 3): what `to_crop` does, as a matrix for (x, y, 1)."""
        (across, down), (left, upper) = self.scale, self.offset
        return np.array([[across, 0, 0.5 * across - left - 0.5], [0, down, 0.5 * down - upper - 0.5]])

    def to_crop(self, points: npt.ArrayLike) -> Floats:
        """(N, 2) px of the photo → (N, 2) px of the crop."""
        return (np.asarray(points, dtype=np.float64) + 0.5) * self.scale - self.offset - 0.5

    def to_photo(self, points: npt.ArrayLike) -> Floats:
        """(N, 2) px of the crop → (N, 2) px of the photo."""
        return (np.asarray(points, dtype=np.float64) + 0.5 + self.offset) / self.scale - 0.5


def align(image: Pixels, points: npt.ArrayLike, template: npt.ArrayLike, size: int = CROP) -> Aligned:
    """Cut out the face that `points` mark, at the size and place that the network expects.

    Args:
        image: (H, W, 3) uint8 RGB, upright.
        points: (5, 2) px, in the order of POINTS.
        template: (5, 3) the same points of the mean face, 1.0 = 100 mm, y up, z towards the viewer.
        size: Side of the crop, px; the face keeps its share of it.

    Raises:
        FaceError: The points cannot be those of a face in this picture.
        ModelError: The template is not one.
    """
    height, width = image.shape[:2]
    flipped = _checked_points(points, width, height) * (1, -1) + (0, height - 1)
    origin, px_per_unit = fit_orthography(flipped, template)
    factor = PX_PER_UNIT * size / CROP / px_per_unit
    resized = (int(width * factor), int(height * factor))
    left = int(resized[0] / 2 - size / 2 + (origin[0] - width / 2) * factor)
    upper = int(resized[1] / 2 - size / 2 + (height / 2 - origin[1]) * factor)
    crop = _resized_crop(image, resized, (left, upper), size)
    return Aligned(crop, (resized[0] / width, resized[1] / height), (left, upper))


def fit_orthography(points: Floats, template: npt.ArrayLike) -> tuple[Floats, float]:
    """Least-squares scaled orthography from 3D to 2D.

    Solves x = r1·X + tx, y = r2·X + ty for all points; the scale is the mean length of r1 and r2.

    Args:
        points: (5, 2) px, y up.
        template: (5, 3), 1.0 = 100 mm.

    Returns:
        The image of the template's origin, (2,) px, and the scale in px per 100 mm.

    Raises:
        FaceError: Seen so, the face would look away from the viewer: left and right, or up and down, are swapped.
        ModelError: The template is not five points in space.
    """
    solid = np.asarray(template, dtype=np.float64)
    if solid.shape != (5, 3) or not np.isfinite(solid).all() or np.linalg.matrix_rank(solid - solid.mean(axis=0)) < 3:
        raise ModelError(
            f"the alignment template of shape {solid.shape} is not usable",
            allowed="(5, 3): five finite points that do not lie in one plane",
        )
    design = np.hstack([solid, np.ones((5, 1))])
    solution = np.linalg.lstsq(design, points, rcond=None)[0]
    right, up = solution[:3, 0], solution[:3, 1]
    lengths = np.linalg.norm(right), np.linalg.norm(up)
    if np.cross(right, up)[2] < _BEHIND * lengths[0] * lengths[1]:
        raise FaceError(
            "the five points show a face from behind: left and right, or up and down, are swapped",
            allowed=_ORDER,
        )
    return solution[3], float(np.mean(lengths))


_ORDER = f"x to the right, y down, in the order {', '.join(POINTS)}, each as seen in the picture"


def _checked_points(points: npt.ArrayLike, width: int, height: int) -> Floats:
    """The points as (5, 2) float64, or a FaceError that says what is wrong with them."""
    found = np.asarray(points, dtype=np.float64)
    if found.shape != (5, 2):
        raise FaceError(f"alignment takes five points, not an array of shape {found.shape}", allowed=_ORDER)
    if not np.isfinite(found).all():
        raise FaceError("one of the five points is not a finite number", allowed=_ORDER)
    x, y = found.mean(axis=0)
    if not (-0.5 <= x <= width - 0.5 and -0.5 <= y <= height - 0.5):
        raise FaceError(
            f"the five points lie around ({x:.0f}, {y:.0f}), outside the picture of {width}x{height} px",
            allowed="points in pixels of this very picture, after its EXIF orientation",
        )
    spread = np.linalg.svd(found - found.mean(axis=0), compute_uv=False)
    if np.ptp(found, axis=0).max() < _MIN_SPREAD_PX:
        raise FaceError(
            f"the five points lie within {np.ptp(found, axis=0).max():.1f} px: there is no face to see",
            allowed=f"points that spread over at least {_MIN_SPREAD_PX:.0f} px",
        )
    if spread[1] < _MIN_FLATNESS * spread[0]:
        raise FaceError("the five points lie on one line", allowed=_ORDER)
    return found


def _resized_crop(image: Pixels, resized: tuple[int, int], corner: tuple[int, int], size: int) -> Pixels:
    """What resizing the photo to `resized` and cropping at `corner` gives, computed for the crop's part only."""
    height, width = image.shape[:2]
    left, upper = max(corner[0], 0), max(corner[1], 0)
    right, lower = min(corner[0] + size, resized[0]), min(corner[1] + size, resized[1])
    if right <= left or lower <= upper:
        raise FaceError("the crop around the five points has no pixel of the picture", allowed=_ORDER)
    x0, x1, columns = _source(left, right, width / resized[0], width)
    y0, y1, rows = _source(upper, lower, height / resized[1], height)
    box = (x0 - columns.start, y0 - rows.start, x1 - columns.start, y1 - rows.start)
    near = Image.fromarray(image[rows, columns])
    part = near.resize((right - left, lower - upper), Image.Resampling.BICUBIC, box=box)
    crop = np.zeros((size, size, 3), dtype=np.uint8)
    x, y = left - corner[0], upper - corner[1]
    crop[y : y + part.height, x : x + part.width] = np.asarray(part)
    return crop


def _source(start: int, stop: int, step: float, length: int) -> tuple[float, float, slice]:
    """The photo's interval under the resized pixels `start` to `stop`, and all photo pixels that the filter reads."""
    reach = math.ceil(_BICUBIC_REACH * max(step, 1.0)) + 1
    first, last = start * step, min(stop * step, length)
    return first, last, slice(max(0, math.floor(first) - reach), min(length, math.ceil(last) + reach))
