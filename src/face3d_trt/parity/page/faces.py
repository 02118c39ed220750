"""Pictures of the worst faces: the photo, both meshes through the model's camera, and where they are apart.

No GPU, no torch: every pixel's surface point comes from `portrait.visible`, the colours of the heat maps from
matplotlib's viridis, which is perceptually uniform and can be read without colour vision.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.decode import CAMERA_Z, Decoder, gamma, light, pose, project, rotation
from face3d_trt.names import CROP, GROUPS
from face3d_trt.parity.meaning import distances
from face3d_trt.parity.page.axis import Axis, axis_to
from face3d_trt.parity.portrait import boxes, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.parity.exhibits import Exhibit

Array = npt.NDArray[Any]
SCALE = 2  # pixels for each of the crop's: screens have two for each of the page's
QUALITY = 88  # of WebP; a face is 10 kB
COLOURS = "viridis"
# The 68 landmarks in the usual order: jaw, brows, bridge and foot of the nose, eyes and lips; the last four are closed.
CONTOURS = (range(17), range(17, 22), range(22, 27), range(27, 31), range(31, 36))
CONTOUR = (255, 255, 255, 150)
NEAR = 0.5  # 50 mm before the camera: no face is there
OVERLAP = 12  # a sound face fills the picture once or twice, a torn one may fill it as often as it has triangles
PIECES = 6  # of a line between two landmarks
BEHIND = 0.04  # 4 mm: lines that lie deeper are hidden
RINGS = (range(36, 42), range(42, 48), range(48, 60), range(60, 68))


@dataclass(frozen=True)
class Maps:
    """One kind of heat map over all pictures of a plan, on one scale.

    Attributes:
        title: What is shown.
        axis: From 0 to the largest error, in mm.
        pictures: As data URIs, one for each exhibit; None where there is no mesh.
    """

    title: str
    axis: Axis
    pictures: tuple[str | None, ...]


@dataclass(frozen=True)
class Drawn:
    """All pictures of one plan, as data URIs.

    Attributes:
        photos: One for each exhibit.
        references: The mesh of the reference, textured and lit as the coefficients say; None where there is none.
        answers: That of the candidate.
        maps: Distance between the two, posed, and of the shapes alone; () where nothing can be drawn.
    """

    photos: tuple[str, ...]
    references: tuple[str | None, ...]
    answers: tuple[str | None, ...]
    maps: tuple[Maps, ...]


@dataclass(frozen=True, eq=False)
class _Mesh:
    """One decoded face: (V, 3) each, and the surface that the camera sees."""

    shape: Array
    vertex: Array
    colour: Array
    pixels: Array
    corners: Array
    weights: Array


Pair = tuple[_Mesh | None, _Mesh | None]  # of the reference, of the candidate


def draw(exhibits: Sequence[Exhibit], decoder: Decoder | None) -> Drawn:
    """Draw the exhibits of one plan.

    Args:
        exhibits: Its worst pictures.
        decoder: The morphable model; None: only the photos are drawn.
    """
    photos = tuple(_photo(exhibit.crop) for exhibit in exhibits)
    if decoder is None:
        return Drawn(photos, (None,) * len(photos), (None,) * len(photos), ())
    pairs = [(_decoded(each.reference, decoder), _decoded(each.answer, decoder)) for each in exhibits]
    return Drawn(
        photos=photos,
        references=tuple(_textured(reference) for reference, _ in pairs),
        answers=tuple(_textured(answer) for _, answer in pairs),
        maps=(
            _maps("Vertex error, posed", pairs, "vertex", decoder),
            _maps("Shape error, without pose", pairs, "shape", decoder),
        ),
    )


def colour_bar() -> str:
    """The colours of the heat maps from 0 to the largest, left to right, as a data URI."""
    from matplotlib import colormaps

    return _encode(colormaps[COLOURS](np.linspace(0, 1, 256), bytes=True)[None], lossless=True)


def _decoded(coeffs: Array | None, decoder: Decoder) -> _Mesh | None:
    """The mesh of coefficients (257,); None where there are none, or no camera could see it as a face."""
    if coeffs is None:
        return None
    with np.errstate(all="ignore"):
        return _mesh(coeffs[None], decoder)


def _mesh(coeffs: Array, decoder: Decoder) -> _Mesh | None:
    shape = decoder.shape(coeffs)
    vertex = pose(shape, coeffs)
    if not np.isfinite(vertex).all() or vertex[..., 2].max() > CAMERA_Z - NEAR:
        return None
    covered = boxes(project(vertex[0])[decoder.triangles] * SCALE, CROP * SCALE)[1]
    if covered.prod(axis=1).sum() > (OVERLAP * CROP * SCALE) ** 2:
        return None
    turn = rotation(coeffs[:, GROUPS["angle"]])
    normals = decoder.normals(shape) @ turn.transpose(0, 2, 1)
    colour = np.nan_to_num(np.clip(decoder.albedo(coeffs) * light(normals, gamma(coeffs)), 0, 1))
    return _Mesh(shape[0], vertex[0], colour[0], *visible(vertex[0], decoder.triangles, SCALE))


def _textured(mesh: _Mesh | None) -> str | None:
    return None if mesh is None else _encode(_canvas(mesh, _surface(mesh, mesh.colour)))


def _surface(mesh: _Mesh, values: Array) -> Array:
    """Values of vertices, (V, …), at the pixels that show the mesh, (P, …)."""
    parts = (mesh.weights[:, corner] * values[mesh.corners[:, corner]].T for corner in range(3))
    return np.asarray(sum(parts)).T


def _canvas(mesh: _Mesh, colours: Array) -> Array:
    """Colours 0..1 of the pixels as a picture, (height, width, 4) uint8, transparent around the face."""
    side = CROP * SCALE
    picture = np.zeros((side * side, 4), np.uint8)
    picture[mesh.pixels, :3] = np.round(255 * colours[:, :3])
    picture[mesh.pixels, 3] = 255
    return picture.reshape(side, side, 4)


def _maps(title: str, pairs: Sequence[Pair], what: str, decoder: Decoder) -> Maps:
    """Heat maps on the reference's mesh, in its pose."""
    errors = [
        None if reference is None or answer is None else distances(getattr(reference, what), getattr(answer, what))
        for reference, answer in pairs
    ]
    axis = axis_to(max((float(error.max()) for error in errors if error is not None), default=0.0))
    pictures = (
        None if reference is None or error is None else _map(reference, error / axis.high, decoder.keypoints)
        for (reference, _), error in zip(pairs, errors, strict=True)
    )
    return Maps(title, axis, tuple(pictures))


def _map(mesh: _Mesh, shares: Array, keypoints: Array) -> str:
    """The heat map of (V,) shares of the scale."""
    from matplotlib import colormaps

    picture = _canvas(mesh, colormaps[COLOURS](_surface(mesh, shares)))
    return _encode(_with_contours(picture, mesh, keypoints))


def _with_contours(picture: Array, mesh: _Mesh, keypoints: Array) -> Array:
    """Thin lines along eyes, nose, mouth and jaw where they can be seen, so that the map can be read as a face."""
    from PIL import Image, ImageDraw

    lines = Image.new("RGBA", picture.shape[1::-1])
    pen = ImageDraw.Draw(lines)
    nearest = _depth(mesh)
    for indices in (*CONTOURS, *((*ring, ring[0]) for ring in RINGS)):
        corners = mesh.vertex[keypoints[list(indices)]]
        steps = np.arange(PIECES + 1)[:, None, None] / PIECES
        points = (corners[:-1] + steps * (corners[1:] - corners[:-1])).swapaxes(0, 1).reshape(-1, 3)
        placed = project(points) * SCALE
        seen = _at(nearest, placed) <= points[:, 2] + BEHIND
        seen &= _at(nearest, placed) > -np.inf
        for start in np.flatnonzero(seen[:-1] & seen[1:]):
            pen.line([tuple(point) for point in placed[start : start + 2].tolist()], CONTOUR, SCALE)
    return np.asarray(Image.alpha_composite(Image.fromarray(picture), lines))


def _depth(mesh: _Mesh) -> Array:
    """Z of the surface that each pixel shows; minus infinity beside it."""
    side = CROP * SCALE
    nearest = np.full(side * side, -np.inf)
    nearest[mesh.pixels] = _surface(mesh, mesh.vertex[:, 2])
    return nearest.reshape(side, side)


def _at(picture: Array, placed: Array) -> Array:
    column, row = np.clip(placed.astype(int), 0, len(picture) - 1).T
    return np.asarray(picture[row, column])


def _photo(crop: Array) -> str:
    from PIL import Image

    shown = Image.fromarray(crop).resize((CROP, CROP), Image.Resampling.BICUBIC)
    return _encode(np.asarray(shown))


def _encode(picture: Array, *, lossless: bool = False) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "WEBP", quality=QUALITY, method=4, lossless=lossless)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
