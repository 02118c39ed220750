"""Pictures of a face's mesh, drawn in numpy: clay or textured, over the photo or by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.optional import require
from face3d_trt.reconstruct.raster import nearest_surface

if TYPE_CHECKING:
    from face3d_trt.reconstruct.decoder import Face, FaceDecoder

Array = npt.NDArray[Any]
Pixels = npt.NDArray[np.uint8]

OVERLAY_SIDE = 1024  # px at most, of the picture with the mesh
MESH_SIDE = 384  # px at most, at which clay, which has no detail, is drawn; then it is enlarged
CLAY = (0.93, 0.90, 0.86)
COVER = 0.72  # of the photo by the mesh
SUN = (-0.35, 0.45, 0.82)  # towards the light, as the viewer sees the face
FINE = 2  # subpixels along either side, which smooth the outline
QUALITY = 90


def overlay(decoder: FaceDecoder, face: Face, place: Array, photo: Pixels) -> bytes:
    """The mesh over the photo, as a JPEG of at most OVERLAY_SIDE px.

    Args:
        decoder: Of the face's model.
        face: The face.
        place: (V, 2) px of the photo, the centre of its first pixel at (0, 0).
        photo: (H, W, 3) uint8 RGB.
    """
    cv2 = require("cv2", "reconstruct", "drawing meshes")
    height, width = photo.shape[:2]
    factor = min(1.0, OVERLAY_SIDE / max(height, width))
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    ground = cv2.resize(photo, size, interpolation=cv2.INTER_AREA) if factor < 1 else photo
    coarse = min(1.0, MESH_SIDE / max(size))
    small = (max(1, round(size[0] * coarse)), max(1, round(size[1] * coarse)))
    placed = (place + 0.5) * (small[0] / width, small[1] / height)
    layers = np.dstack(draw(decoder, placed, face.depth, clay(face), small[1], small[0]))
    layers = cv2.resize(layers, size, interpolation=cv2.INTER_LINEAR)
    picture, cover = layers[..., :3], layers[..., 3:]
    mixed = ground + (picture - ground * cover) * COVER
    done, data = cv2.imencode(
        ".jpg", cv2.cvtColor(_bytes(mixed), cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
    )
    assert done
    return bytes(data)


def clay(face: Face) -> Array:
    """Colours of vertices (V, 3), 0 to 255: one colour under one light, which shows the form alone."""
    sun = np.array(SUN) / np.linalg.norm(SUN)
    light = 0.28 + 0.72 * np.clip(face.normals @ (face.turn.T @ sun).astype(np.float32), 0, 1)
    return np.asarray(255 * light[:, None] * np.array(CLAY, np.float32))


def draw(
    decoder: FaceDecoder,
    placed: Array,
    depth: Array,
    colours: Array,
    height: int,
    width: int,
    texture: Pixels | None = None,
) -> tuple[Array, Array]:
    """A mesh.

    Args:
        decoder: Of the face's model.
        placed: (V, 2) px, (0, 0) the picture's upper left corner.
        depth: (V,) distance from the viewer.
        colours: (V, 3), 0 to 255; where there is a texture, it is multiplied by (V, 1) or (V, 3) of them.
        height: Of the picture, px.
        width: Likewise.
        texture: (size, size, 3) uint8 RGB.

    Returns:
        Its colours on black (height, width, 3) float32, and its cover (height, width, 1), 0 to 1.
    """
    cv2 = require("cv2", "reconstruct", "drawing meshes")
    rows, columns = height * FINE, width * FINE
    surface = nearest_surface(placed * FINE, depth, decoder.triangles, rows, columns)
    corners = decoder.triangles[surface.triangle]
    found = np.einsum("pk,pkc->pc", surface.weights, colours[corners].astype(np.float32))
    if texture is not None:
        at = np.einsum("pk,pkc->pc", surface.weights, decoder.uv[corners])
        found = found * _at(texture, at)
    picture = np.zeros((rows * columns, 4), np.float32)
    picture[surface.pixel, :3] = found
    picture[surface.pixel, 3] = 1
    small = cv2.resize(picture.reshape(rows, columns, 4), (width, height), interpolation=cv2.INTER_AREA)
    return small[..., :3], small[..., 3:]


def _at(texture: Pixels, uv: Array) -> Array:
    from face3d_trt.reconstruct.texture import colours_at

    return colours_at(texture, uv).astype(np.float32)


def _bytes(picture: Array) -> Pixels:
    return np.asarray(np.clip(picture, 0, 255).round().astype(np.uint8))
