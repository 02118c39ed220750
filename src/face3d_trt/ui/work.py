"""One photo through all stages, in this process, each stage timed. Knows nothing of pages.

with PhotoWork(plan, max_pixels=50_000_000) as work:
    result = work.run(Path("photo.jpg").read_bytes())
    result.files["face.glb"], result.seconds["network"]
"""

from __future__ import annotations

import io
import threading
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.errors import FaceError
from face3d_trt.faces.detect import Mtcnn
from face3d_trt.faces.images import LONG_SIDE, decode_photo
from face3d_trt.names import CROP
from face3d_trt.reconstruct.clock import Clock
from face3d_trt.reconstruct.engines import EngineSetup, describe, open_for
from face3d_trt.reconstruct.gpus import CPU, find_devices
from face3d_trt.reconstruct.mesh import glb_file
from face3d_trt.reconstruct.options import cores
from face3d_trt.reconstruct.products import MIME, ProductOptions, face_path, load_face_decoder, make_products
from face3d_trt.reconstruct.stages import find_faces, infer

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import numpy.typing as npt

    from face3d_trt.faces.images import Pixels

STEM = "face"
GLB, TEXTURE, COEFFS, ZIP = f"{STEM}.glb", f"{STEM}.png", f"{STEM}.coeffs.json", f"{STEM}.obj.zip"
NAME = "this file"  # in messages; a client's own names go nowhere
_PRODUCTS = ProductOptions()  # OBJ, its texture and the coefficients


@dataclass(frozen=True, eq=False)
class Result:
    """What became of a photo.

    Attributes:
        size: Width and height of the photo, px.
        faces: That were found; the largest is reconstructed.
        searched: Whether the photo was searched; an aligned crop is not.
        coeffs: (257,) float32.
        files: Content by name: GLB, TEXTURE, COEFFS, and ZIP with OBJ, MTL and texture.
        seconds: By stage, in their order.
    """

    size: tuple[int, int]
    faces: int
    searched: bool
    coeffs: npt.NDArray[np.float32]
    files: dict[str, bytes]
    seconds: dict[str, float]


class PhotoWork:
    """Engine, detector and morphable model, opened and warmed up. One photo at a time; others wait.

    Args:
        plan: A plan, which a GPU runs where there is one, ONNX Runtime its typed graph elsewhere; or an ONNX file.
        max_pixels: Of a photo.

    Attributes:
        backend: What computes, for people.
        weights: Kind of the model's weights.

    Raises:
        PlanError, GraphError: The plan is damaged or not for this machine.
        UsageError: The morphable model is another network's.
        MissingError: A package, or the morphable model beside the plan.
    """

    def __init__(self, plan: Path, max_pixels: int) -> None:
        self._max_pixels, self._lock = max_pixels, threading.Lock()
        face = face_path(plan)
        device = find_devices("all")[0]
        self._engine = open_for(EngineSetup(plan, device, cores()))
        try:
            self._ready = describe(self._engine, device != CPU)
            self.backend, self.weights = self._ready.backend, self._ready.weights
            self._decoder = load_face_decoder(face, self._ready.checkpoint_sha256)
            self._decoder.prepare(_PRODUCTS)
            self._detector = Mtcnn()
            self._detector.detect(np.zeros((64, 64, 3), np.uint8), NAME)  # loads it
            self._coeffs(np.zeros((CROP, CROP, 3), np.uint8))
        except BaseException:
            self._engine.close()
            raise

    def run(self, data: bytes) -> Result:
        """Reconstruct the largest face.

        Args:
            data: Content of a JPEG, PNG, WebP or BMP file.

        Raises:
            ImageError: It is not such a picture; TooLargeError: it has too many pixels.
            FaceError: There is no face in it.
            EngineError: The engine failed.
        """
        with self._lock:
            return self._run(data)

    def close(self) -> None:
        """Free the engine, once the photo that is being worked on is done."""
        with self._lock:
            self._engine.close()

    def __enter__(self) -> PhotoWork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, data: bytes) -> Result:
        clock = Clock()
        with clock.timed("read the photo"):
            photo = decode_photo(data, NAME, LONG_SIDE, self._max_pixels)
        with clock.timed("find and align the face"):
            found = find_faces(photo, NAME, self._detector, self._ready.template)
        if not found.faces:
            raise FaceError("the faces in this photo are at its edge or turned away too far")
        face = found.faces[0]
        with clock.timed("network"):
            coeffs = self._coeffs(face.crop)
        with clock.timed("mesh and texture"):
            files = make_products(self._decoder, photo.pixels, face.matrix, coeffs, STEM, _PRODUCTS)
            glb = glb_file(self._decoder, self._decoder.decode(coeffs), files[TEXTURE], MIME["png"])
        with clock.timed("files"):
            mesh = [name for name in files if name != COEFFS]
            kept = {GLB: glb, TEXTURE: files[TEXTURE], COEFFS: files[COEFFS], ZIP: _zipped(files, mesh)}
        height, width = (round(side / photo.scale) for side in photo.pixels.shape[:2])
        return Result((width, height), found.count, face.box is not None, coeffs, kept, clock.take())

    def _coeffs(self, crop: Pixels) -> npt.NDArray[np.float32]:
        least = self._ready.batch[0]  # of some plans more than one
        coeffs: npt.NDArray[np.float32] = infer(self._engine, np.repeat(crop[None], least, axis=0))[0].copy()
        return coeffs


def _zipped(files: dict[str, bytes], names: list[str]) -> bytes:
    """The files as an archive; pictures are compressed already."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in names:
            packed = zipfile.ZIP_STORED if name.endswith(".png") else zipfile.ZIP_DEFLATED
            archive.writestr(name, files[name], packed, compresslevel=1)
    return target.getvalue()
