"""The photo, spread over the UV map: each texel is projected into the original photo and sampled there.

Within a triangle places are interpolated linearly: at the training camera's distance of a metre the perspective over a
millimetre of skin moves them by less than a thousandth of the triangle.

What the photo does not show is painted with the model's albedo, brought to the photo's colours and light by a gain that
equals them where both are known and is smooth elsewhere (pull-push of Gortler et al. 1996, "The Lumigraph", on local
means). So the seam has a step neither in trust nor in local colour. The light that the network found is not used: nine
harmonics know little of where the photo shows nothing, and what they say there ends in a step at the seam.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import FaceError
from face3d_trt.optional import require
from face3d_trt.reconstruct.atlas import COLOURS_GRID, PLACES_GRID
from face3d_trt.reconstruct.visibility import Buffer, bounds, trust

if TYPE_CHECKING:
    from face3d_trt.reconstruct.decoder import Face, FaceDecoder

Array = npt.NDArray[Any]
Pixels = npt.NDArray[np.uint8]

GAIN_GRID = 64  # local means: 3 mm of skin
GAIN_LIMITS = (0.2, 4.0)
COARSE = 1.25  # px of the photo per texel, above which the photo is shrunk before it is sampled
STRIP = 64  # rows of the texture that are worked on at a time
NEAR = 4  # px of the photo kept around the face: the reach of the filter
SURE = 6  # a cell of which a sixth is known speaks for itself
BASE = 24.0  # added to colours, 0 to 255, before they are compared and multiplied: dark ones have no reliable ratio


@dataclass(frozen=True, eq=False)
class Baked:
    """A texture.

    Attributes:
        pixels: (size, size, 3) uint8 RGB, row 0 at v = 1; a flat colour where no surface is.
        weight: (grid, grid) float32: how much of the photo is in it, 0 to 1.
        visible: Share of the surface's texels that come from the photo.
        px_per_texel: Of the photo, where it is seen: below 1 the texture is finer than the photo.
    """

    pixels: Pixels
    weight: Array
    visible: float
    px_per_texel: float


def bake(decoder: FaceDecoder, face: Face, place: Array, photo: Pixels, size: int) -> Baked:
    """The texture of a face.

    Args:
        decoder: Of the face's model.
        face: What the coefficients gave.
        place: (V, 2) float64: the vertices in the photo, px, the centre of its first pixel at (0, 0).
        photo: (H, W, 3) uint8 RGB.
        size: Side of the texture in texels.

    Raises:
        FaceError: No part of the face can be seen in the photo.
        MissingError: The extra `reconstruct` is not installed.
    """
    cv2 = require("cv2", "reconstruct", "baking textures")
    coarse, atlas = decoder.atlas(size, COLOURS_GRID), decoder.atlas(size, PLACES_GRID)
    values = np.column_stack([place, face.depth, face.facing]).astype(np.float32)
    places = atlas.spread(np.ascontiguousarray(values[:, :2]))
    buffer = Buffer(place, face.depth, decoder.scatter, _scale(place, face))
    weight = trust(coarse.spread(values), coarse, buffer, photo.shape[:2])
    visible = float(weight[coarse.mapped].mean())
    if visible == 0:
        raise FaceError(
            "no part of the face that the coefficients describe can be seen in the photo",
            allowed="the photo that the crop was cut from, and the transform that cut it",
        )
    seen = atlas.padded & (cv2.resize(weight, places.shape[:2], interpolation=cv2.INTER_LINEAR) > 0)
    density = _density(places, seen) * atlas.grid / size
    sampled = _sample(photo, places, seen, density, size)
    painted = _paint(decoder, face, sampled, weight, size)
    return Baked(_blend(sampled, painted, weight, size), weight, visible, density)


def colours_at(pixels: Pixels, uv: Array) -> Pixels:
    """The texture's colours at UV coordinates: (V, 2) -> (V, 3) uint8 RGB."""
    cv2 = require("cv2", "reconstruct", "baking textures")
    side = len(pixels)
    at = (np.stack([uv[:, 0], 1 - uv[:, 1]], 1) * side - 0.5).astype(np.float32)
    rows = -(-len(at) // side)  # OpenCV's maps are pictures, of at most 32767 a side
    at = np.pad(at, ((0, rows * side - len(at)), (0, 0))).reshape(rows, side, 2)
    found = cv2.remap(pixels, at, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(found.reshape(-1, 3)[: len(uv)], np.uint8)


def _scale(place: Array, face: Face) -> float:
    """Px of the photo for 100 mm."""
    low, high = bounds(place)
    front, back = bounds(face.shape[:, :2])
    return float((high - low).max() / max((back - front).max(), 1e-6))


def _density(places: Array, seen: Array) -> float:
    """Px of the photo between neighbouring texels of the grid, where it is seen: the 75th percentile."""
    rows, columns = (np.arange(0, size - 1, 4) for size in seen.shape)  # those that have a neighbour
    here = places[np.ix_(rows, columns)]
    across = np.abs(places[np.ix_(rows, columns + 1)] - here)
    down = np.abs(places[np.ix_(rows + 1, columns)] - here)
    both = np.maximum(across, down)
    steps = np.maximum(both[..., 0], both[..., 1])[seen[np.ix_(rows, columns)]]
    return float(np.percentile(steps, 75)) if len(steps) else 1.0


def _sample(photo: Pixels, places: Array, seen: Array, density: float, size: int) -> Pixels:
    """The photo at every texel: (size, size, 3); it is shrunk first where texels are larger than its pixels."""
    cv2 = require("cv2", "reconstruct", "baking textures")
    mask = seen.astype(np.uint8)
    extent = np.array([cv2.minMaxLoc(cv2.extractChannel(places, axis), mask)[:2] for axis in (0, 1)])
    low = np.maximum(np.floor(extent[:, 0]).astype(int) - NEAR, 0)
    high = np.ceil(extent[:, 1]).astype(int) + NEAR + 1
    near = photo[low[1] : high[1], low[0] : high[0]]
    height, width = near.shape[:2]
    small = (width, height)
    if density > COARSE:
        small = (max(1, round(width / density)), max(1, round(height / density)))
        near = cv2.resize(near, small, interpolation=cv2.INTER_AREA)
    scale = np.array([small[0] / width, small[1] / height], np.float32)
    at = (places - (low - 0.5).astype(np.float32)) * scale - np.float32(0.5)
    sampled = np.zeros((size, size, 3), np.uint8)
    for rows, part in _enlarged(at, size):
        columns = _columns(seen, rows, size)
        sampled[rows, columns] = cv2.remap(
            near, part[:, columns], None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
        )
    return sampled


def _columns(seen: Array, rows: slice, size: int) -> slice:
    """Columns of the texture between which all that is seen in these rows lies."""
    scale = size / len(seen)
    part = seen[max(int(rows.start / scale) - 1, 0) : int(rows.stop / scale) + 2]
    there = np.flatnonzero(part.any(axis=0))
    if not len(there):
        return slice(0, 1)  # OpenCV wants some
    return slice(max(int((there[0] - 1) * scale), 0), min(int((there[-1] + 2) * scale) + 1, size))


def _enlarged(grid: Array, size: int) -> Iterator[tuple[slice, Array]]:
    """A grid at the texture's size, as OpenCV enlarges it linearly; in strips that stay in the processor's cache.

    Args:
        grid: (side, side) or (side, side, channels), float32 or uint8.
        size: Of the texture.

    Yields:
        Rows of the texture, and what belongs there: (rows, size) or (rows, size, channels).
    """
    cv2 = require("cv2", "reconstruct", "baking textures")
    side = len(grid)
    if side == size:
        yield slice(0, size), grid
        return
    factor, rest = divmod(size, side)
    step = side if rest else max(1, STRIP // factor)  # only whole factors meet a pixel's centre at each strip
    for start in range(0, side, step):
        stop = min(start + step, side)
        low, high = max(start - 1, 0), min(stop + 1, side)  # interpolation reads one more on either side
        height = size if rest else (high - low) * factor
        large = cv2.resize(grid[low:high], (size, height), interpolation=cv2.INTER_LINEAR)
        first = 0 if rest else (start - low) * factor
        rows = slice(0, size) if rest else slice(start * factor, stop * factor)
        yield rows, large[first : first + rows.stop - rows.start]


def _paint(decoder: FaceDecoder, face: Face, sampled: Pixels, weight: Array, size: int) -> Pixels:
    """The model's colours under the photo's light: (grid, grid, 3) uint8 RGB, a flat colour where no surface is."""
    cv2 = require("cv2", "reconstruct", "baking textures")
    atlas = decoder.atlas(size, COLOURS_GRID)
    side = (atlas.grid, atlas.grid)
    colours = atlas.spread(np.clip(face.albedo, 0, 1) * np.float32(255))
    known = weight * atlas.mapped
    photo = cv2.resize(sampled, side, interpolation=cv2.INTER_AREA)
    gain = _gain(photo.astype(np.float32), colours, known)
    painted = (colours + BASE) * cv2.resize(gain, side, interpolation=cv2.INTER_CUBIC) - BASE
    painted[~atlas.padded] = painted[atlas.mapped].mean(axis=0)
    return np.asarray(np.clip(painted, 0, 255).round().astype(np.uint8))


def _gain(photo: Array, colours: Array, known: Array) -> Array:
    """By what the model's colours are multiplied: (GAIN_GRID, GAIN_GRID, 3) float32."""
    cv2 = require("cv2", "reconstruct", "baking textures")
    small = (GAIN_GRID, GAIN_GRID)
    both = np.concatenate([photo + BASE, colours + BASE], 2) * known[..., None]
    both = cv2.resize(both, small, interpolation=cv2.INTER_AREA)
    spread = _pull_push(both, cv2.resize(known, small, interpolation=cv2.INTER_AREA))
    return np.asarray(np.clip(spread[..., :3] / spread[..., 3:], *GAIN_LIMITS), np.float32)


def _pull_push(values: Array, weight: Array) -> Array:
    """Fill what has no weight from what has: (side, side, channels) times its weight, (side, side) -> the same."""
    cv2 = require("cv2", "reconstruct", "baking textures")
    side = len(values)
    sure = np.minimum(SURE * weight, 1)[..., None]
    own = values / np.maximum(weight, 1e-6)[..., None]
    if side == 1:
        return np.asarray(own)
    half = (side // 2, side // 2)
    total = cv2.resize(weight, half, interpolation=cv2.INTER_AREA)
    rest = cv2.resize(values, half, interpolation=cv2.INTER_AREA)
    more = np.minimum(4.0, 1 / np.maximum(total, 1e-6))  # a sum over four, not their mean, of weights up to 1
    coarse = _pull_push(rest * more.reshape(*half, 1), total.reshape(half) * more.reshape(half))
    coarse = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_LINEAR).reshape(values.shape)
    return np.asarray(own * sure + coarse * (1 - sure))


def _blend(sampled: Pixels, painted: Pixels, weight: Array, size: int) -> Pixels:
    """One over the other; `sampled` becomes the result."""
    cv2 = require("cv2", "reconstruct", "baking textures")
    for (rows, paint), (_, share) in zip(_enlarged(painted, size), _enlarged(weight, size), strict=True):
        sampled[rows] = cv2.blendLinear(sampled[rows], np.ascontiguousarray(paint), share, 1 - share)
    return sampled
