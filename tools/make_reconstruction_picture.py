"""Draws `docs/reconstruction.jpg`: the demo photo, the mesh over it, the mesh with its texture, and the texture.

The portrait of the astronaut, with what `face3d-trt export` wrote for a model. Needs the extras `export`, `detect`,
`reconstruct`, `cpu` and `dev`.

Usage: python tools/make_reconstruction_picture.py engines/face3d_resnet50.onnx
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
from skimage import data

from face3d_trt.decode import CAMERA_Z, project, rotation
from face3d_trt.faces.align import align
from face3d_trt.faces.detect import detector
from face3d_trt.graph.info import read_info
from face3d_trt.names import COEFFS, CROP
from face3d_trt.reconstruct.draw import draw, overlay
from face3d_trt.reconstruct.products import face_path, load_face_decoder
from face3d_trt.reconstruct.texture import bake
from face3d_trt.runtime.ort import OrtEngine

if TYPE_CHECKING:
    from face3d_trt.reconstruct.decoder import Face, FaceDecoder

SIDE = 360  # px of each panel
GREY = 246
YAWS = (0.0, 0.45, -0.45)  # radians
TEXTURE = 2048


def main() -> None:
    """Find, read, bake, draw, write."""
    onnx = Path(sys.argv[1])
    decoder = load_face_decoder(face_path(onnx))
    photo = data.astronaut()
    (found,) = detector("mtcnn").detect(photo, "astronaut")
    aligned = align(photo, found.points, np.array(read_info(onnx).template))
    with OrtEngine(onnx) as engine:
        coeffs = engine(aligned.crop[None].transpose(0, 3, 1, 2).astype(np.float32) / 255)[COEFFS][0]
    face = decoder.decode(coeffs)
    place = aligned.to_photo(face.crop)
    baked = bake(decoder, face, place, photo, TEXTURE)
    panels = [cut(photo, place), cut(decoded(overlay(decoder, face, place, photo)), place)]
    panels += [turned(decoder, face, yaw, baked.pixels) for yaw in YAWS]
    panels.append(cv2.resize(baked.pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA))
    picture = cv2.cvtColor(np.concatenate(panels, 1), cv2.COLOR_RGB2BGR)
    cv2.imwrite("docs/reconstruction.jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 88])


def cut(photo: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The part of a photo around the face."""
    middle, half = (place.max(axis=0) + place.min(axis=0)) / 2, 0.62 * np.ptp(place, axis=0).max()
    left, upper = np.maximum(middle - half, 0).astype(int)
    right, lower = (middle + half).astype(int)
    return cv2.resize(photo[upper:lower, left:right], (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)


def decoded(picture: bytes) -> np.ndarray:
    """Pixels of a JPEG."""
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def turned(decoder: FaceDecoder, face: Face, yaw: float, texture: np.ndarray) -> np.ndarray:
    """The textured mesh as the camera sees it from another side, without light of its own."""
    world = face.shape @ rotation(np.array([[0.0, yaw, 0.0]]))[0].T
    placed = (project(world) - CROP / 2) * (1.03 * SIDE / CROP) + SIDE / 2
    depth = (CAMERA_Z - world[:, 2]).astype(np.float32)
    picture, cover = draw(decoder, placed, depth, np.ones((len(world), 1)), SIDE, SIDE, texture)
    return np.clip(picture + (1 - cover) * GREY, 0, 255).round().astype(np.uint8)


if __name__ == "__main__":
    main()
