"""A process that reads photos: what may crash, hang or take memory stays away from those that speak HTTP.

Its front sends frames (wire.py), one after the other:

{"do": "find", "name", "faces"} and a photo's bytes  → {"size", "count", "faces": [{"box", ...}]} and the crops
{"do": "make", "mesh", "texture", "texture_size"} and coefficients of these faces → {"faces": [...]} and the files
Either is answered with {"problem": {...}} where the photo is to blame.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from face3d_trt.errors import Face3DError, FaceError, ImageError, InputError, TooLargeError
from face3d_trt.faces.detect import Mtcnn
from face3d_trt.faces.images import LONG_SIDE, decode_photo
from face3d_trt.names import COEFFICIENTS
from face3d_trt.reconstruct.messages import Broken
from face3d_trt.reconstruct.products import (
    MeshFormat,
    Product,
    ProductOptions,
    load_face_decoder,
    make_products,
)
from face3d_trt.reconstruct.stages import find_faces
from face3d_trt.serving.wire import FrameReader, pack_frame

if TYPE_CHECKING:
    from face3d_trt.faces.images import Photo
    from face3d_trt.reconstruct.decoder import FaceDecoder
    from face3d_trt.reconstruct.stages import FaceCrop

MEDIA = {
    ".obj": "model/obj", ".mtl": "model/mtl", ".glb": "model/gltf-binary", ".png": "image/png",
    ".json": "application/json",
}  # fmt: skip
TEXTURE_SIZE = 1024  # unless a request says another
_log = logging.getLogger("face3d_trt.serving")
STEM = "face"  # what names of files begin with; no name of a client's is ever used


@dataclass(frozen=True)
class PhotoWorker:
    """What a photo process is told.

    Attributes:
        path: Of the socket that it listens on.
        template: (5, 3) the model's alignment template.
        face: File of the morphable model; None: no meshes, no landmarks.
        checkpoint_sha256: Of the network.
        max_pixels: Of a photo.
        patience_s: That one frame may take; then the process ends itself, wherever it is.
    """

    path: Path
    template: tuple[tuple[float, float, float], ...]
    face: Path | None
    checkpoint_sha256: str
    max_pixels: int
    patience_s: float


class _Answer(Exception):  # noqa: N818  it is an answer
    """What is told instead of a result."""

    def __init__(self, status: int, error: Face3DError) -> None:
        self.head = {"problem": {"status": status, "detail": error.problem, "allowed": error.allowed}}


def run(connection: Connection, worker: PhotoWorker) -> None:
    """The process's main loop: says that it listens, then serves one front until its parent is gone."""
    try:
        reader = PhotoReader(worker)
    except Face3DError as error:
        connection.send(Broken(error))
        return
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    beside = worker.path.with_name(f"{worker.path.name}.{os.getpid()}")
    listener.bind(str(beside))
    listener.listen()
    beside.rename(worker.path)
    connection.send(None)
    while True:
        link, _ = listener.accept()
        with link, suppress(ConnectionError):
            _serve(link, reader, worker.patience_s)


def _serve(link: socket.socket, reader: PhotoReader, patience_s: float) -> None:
    frames = FrameReader(link)
    for piece in pack_frame({"ready": True}):
        link.sendall(piece)
    while frame := frames.read():
        signal.setitimer(signal.ITIMER_REAL, patience_s)  # SIGALRM ends a process that does not handle it
        try:
            answer = reader.answer(*frame)
        except _Answer as told:
            answer = told.head, []
        except Exception as error:  # a mistake of ours; the process is none the worse for it
            _log.exception("a photo could not be worked on")
            answer = _Answer(500, Face3DError(f"this server failed on the photo: {type(error).__name__}")).head, []
        signal.setitimer(signal.ITIMER_REAL, 0)
        for piece in pack_frame(*answer):
            link.sendall(piece)


class PhotoReader:
    """Photos to crops, and coefficients to meshes; remembers the last photo.

    Args:
        worker: Model and limits.

    Raises:
        MissingError: A package is missing.
        UsageError: The morphable model is another network's, or damaged.
    """

    def __init__(self, worker: PhotoWorker) -> None:
        self._worker = worker
        self._detector = Mtcnn()
        self._detector.detect(np.zeros((64, 64, 3), np.uint8), "nothing")  # loads it
        self._decoder: FaceDecoder | None = None
        if worker.face is not None:
            self._decoder = load_face_decoder(worker.face, worker.checkpoint_sha256)
            self._decoder.prepare(_options("obj", True, TEXTURE_SIZE))
        self._photo: Photo | None = None
        self._faces: tuple[FaceCrop, ...] = ()

    def answer(self, head: dict[str, Any], blobs: list[bytearray]) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to a frame.

        Raises:
            _Answer: The photo is to blame.
        """
        try:
            return self._find(head, bytes(blobs[0])) if head["do"] == "find" else self._make(head, blobs[0])
        except TooLargeError as error:
            raise _Answer(413, error) from error
        except ImageError as error:
            raise _Answer(400, error) from error
        except (FaceError, InputError) as error:
            raise _Answer(422, error) from error
        except Face3DError as error:
            raise _Answer(501, error) from error

    def _find(self, head: dict[str, Any], data: bytes) -> tuple[dict[str, Any], list[bytes]]:
        self._photo, self._faces = None, ()
        photo = decode_photo(data, head["name"], LONG_SIDE, self._worker.max_pixels)
        del data
        found = find_faces(photo, head["name"], self._detector, self._worker.template, head["faces"])
        self._photo, self._faces = photo, found.faces
        height, width = (round(side / photo.scale) for side in photo.pixels.shape[:2])
        told = {"width": width, "height": height, "count": found.count, "faces": [self._place(f) for f in found.faces]}
        return told, [face.crop.tobytes() for face in found.faces]

    def _place(self, face: FaceCrop) -> dict[str, Any]:
        """Where a face is, in px of the file."""
        assert self._photo is not None
        return {
            "box": None if face.box is None else [edge / self._photo.scale for edge in face.box],
            "score": face.score,
            "points": None if face.points is None else self._in_file(face.points),
        }

    def _in_file(self, points: np.ndarray) -> list[list[float]]:
        """Pixels of the decoded photo, which may have been shrunk, as those of the file."""
        assert self._photo is not None
        found: list[list[float]] = ((points + 0.5) / self._photo.scale - 0.5).round(2).tolist()
        return found

    def _make(self, head: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], list[bytes]]:
        told: list[dict[str, Any]] = []
        blobs: list[bytes] = []
        for face, coeffs in zip(self._faces, np.frombuffer(data, np.float32).reshape(-1, COEFFICIENTS), strict=True):
            files = self._files(head, face, coeffs)
            told.append({"landmarks": self._landmarks(face, coeffs), "files": [_about(name) for name in files]})
            blobs += files.values()
        self._photo, self._faces = None, ()
        return {"faces": told}, blobs

    def _landmarks(self, face: FaceCrop, coeffs: np.ndarray) -> list[list[float]] | None:
        """The 68 landmarks in px of the file; None without the morphable model."""
        if self._decoder is None:
            return None
        back = np.linalg.inv(face.matrix[:, :2])
        return self._in_file((self._decoder.landmarks(coeffs) - face.matrix[:, 2]) @ back.T)

    def _files(self, head: dict[str, Any], face: FaceCrop, coeffs: np.ndarray) -> dict[str, bytes]:
        mesh, texture = head["mesh"], head["texture"]
        if self._decoder is None or self._photo is None or not (mesh or texture):
            return {}
        options = _options(mesh, texture, head["texture_size"])
        return make_products(self._decoder, self._photo.pixels, face.matrix, coeffs, STEM, options)


def _options(mesh: MeshFormat | None, texture: bool, size: int) -> ProductOptions:
    save: set[Product] = set()
    if mesh:
        save.add("mesh")
    if texture:
        save.add("texture")
    return ProductOptions(frozenset(save), mesh or "obj", size)


def _about(name: str) -> dict[str, str]:
    return {"name": name, "media_type": MEDIA[Path(name).suffix]}
