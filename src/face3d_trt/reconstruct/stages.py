"""The stages as plain functions: no queue, no process, no state. `workers.py` runs them here, others may elsewhere.

photo = decode("a.jpg")                                            # or `VideoFrames`, or `read_rows`
found = find_faces(photo, "a.jpg", detector, template)             # detect and align
coeffs = infer(engine, np.stack([face.crop for face in found.faces]))
files = make_products(decoder, photo.pixels, face.matrix, coeffs[0], "a", options)      # products.py
write_folder(output / "a.jpg", files, work)                        # results.py
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import FaceError, ImageError
from face3d_trt.faces.align import align
from face3d_trt.faces.detect import MIN_FACE_PX, Detector, Face
from face3d_trt.faces.images import LONG_SIDE, Photo, Pixels, read_photo
from face3d_trt.faces.tensor import to_input
from face3d_trt.names import COEFFS, CROP
from face3d_trt.optional import require
from face3d_trt.reconstruct.products import IDENTITY

if TYPE_CHECKING:
    from face3d_trt.reconstruct.sources import Item
    from face3d_trt.runtime.interface import FaceEngine

Sizes = tuple[tuple[int, int, int, int], ...]  # least and most height, least and most width
MOST_FACES = 64  # of one photo, the largest


@dataclass(frozen=True, eq=False)
class FaceCrop:
    """A face as the network sees it.

    Attributes:
        crop: (224, 224, 3) uint8 RGB.
        matrix: (2, 3): px of the photo to px of the crop, as `make_products` takes it.
        box: left, upper, right, lower in px of the photo; None for a picture that is the crop itself.
        score: Of the detector.
    """

    crop: Pixels
    matrix: npt.NDArray[np.float64]
    box: tuple[float, float, float, float] | None = None
    score: float | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """The faces of a photo: how many there are, and those that are taken, the largest first."""

    count: int
    faces: tuple[FaceCrop, ...]


def decode(path: str) -> Photo:
    """The photo in a file.

    Raises:
        ImageError: It cannot be read; says why.
    """
    return read_photo(path)


def find_faces(
    photo: Photo,
    name: str,
    detector: Detector,
    template: npt.ArrayLike,
    faces: Literal["largest", "all"] = "largest",
    sizes: Sizes = (),
) -> Found:
    """Detect and align. What has 224×224 px is an aligned crop already, and is not searched.

    Args:
        photo: Upright.
        name: Of its file, for detectors that know points by name.
        detector: Finds faces.
        template: (5, 3) the model's alignment template.
        faces: Which of several.
        sizes: Of pictures that are aligned crops too; for folders that hold nothing else.

    Raises:
        FaceError: There is none, or its points cannot be aligned.
        MissingError: The detector's package is not installed.
    """
    height, width = photo.pixels.shape[:2]
    if (height, width) == (CROP, CROP):
        return Found(1, (FaceCrop(photo.pixels, IDENTITY),))
    if any(low <= height <= high and left <= width <= right for low, high, left, right in sizes):
        return Found(1, (FaceCrop(photo.pixels, scaled(height, width)),))
    if min(height, width) < MIN_FACE_PX:
        raise FaceError(f"{width}x{height} px are too small to show a face", allowed=f"{MIN_FACE_PX} px and more")
    seen = sorted(detector.detect(photo.pixels, name, photo.scale), key=_prominence)
    if not seen:
        raise FaceError(f"no face found in {width}x{height} px")
    if faces == "largest":
        return Found(len(seen), (_aligned(photo, seen[0], template),))
    tried = [_try(photo, face, template) for face in seen[:MOST_FACES]]
    taken = tuple(each for each in tried if isinstance(each, FaceCrop))
    if not taken and isinstance(tried[0], FaceError):
        raise tried[0]
    return Found(len(seen), taken)


def read_rows(item: Item, out: Pixels) -> None:
    """Rows of an array file, straight into `out`, (count, height, width, 3) without gaps.

    Raises:
        ImageError: The file is shorter than it was, or cannot be read.
    """
    try:
        with open(item.path, "rb", buffering=0) as file:
            view, done = memoryview(out.reshape(-1).data), 0
            while done < len(view):
                got = os.preadv(file.fileno(), [view[done:]], item.offset + done)
                if not got:
                    raise ImageError(f"{item.path} ends before row {item.start + item.count}")
                done += got
    except OSError as error:
        raise ImageError(f"cannot read {item.path}: {error.strerror or error}") from error


def infer(engine: FaceEngine, crops: Pixels) -> npt.NDArray[np.float32]:
    """Coefficients of aligned crops: (N, height, width, 3) uint8 RGB -> (N, 257) float32."""
    found = engine(to_input(crops, engine.inputs[0].dtype), outputs=[COEFFS])[COEFFS]
    return np.asarray(found, dtype=np.float32)


def scaled(height: int, width: int) -> npt.NDArray[np.float64]:
    """(2, 3): px of an aligned crop of another size to px of that of 224."""
    across, down = CROP / width, CROP / height
    return np.array([[across, 0, 0.5 * across - 0.5], [0, down, 0.5 * down - 0.5]])


class VideoFrames:
    """A video, frame by frame, forward. Frames that are passed over are not converted.

    Raises:
        ImageError: It cannot be opened.
        MissingError: OpenCV is not installed.
    """

    def __init__(self, path: str) -> None:
        self._cv2 = require("cv2", "detect", "reading videos")
        self._path, self._next = path, 0
        self._capture: Any = self._cv2.VideoCapture(path) if os.path.isfile(path) else None
        if self._capture is None or not self._capture.isOpened():
            raise ImageError(f"{path} is not a video that can be read", allowed="a video that OpenCV's FFmpeg knows")
        self.announced = max(0, int(self._capture.get(self._cv2.CAP_PROP_FRAME_COUNT)))  # by the header; a guess

    def frame(self, number: int) -> Photo | None:
        """Frame `number`, upright; None behind the last. Numbers rise from call to call."""
        while self._next < number:
            if not self._capture.grab():
                return None
            self._next += 1
        good, picture = self._capture.read()
        self._next += 1
        if not good:
            return None
        rgb = self._cv2.cvtColor(picture, self._cv2.COLOR_BGR2RGB)
        longest = max(rgb.shape[:2])
        if longest > LONG_SIDE:
            size = tuple(max(1, round(side * LONG_SIDE / longest)) for side in rgb.shape[1::-1])
            rgb = self._cv2.resize(rgb, size, interpolation=self._cv2.INTER_AREA)
        return Photo(rgb, max(rgb.shape[:2]) / longest)

    def close(self) -> None:
        """Let go of the file."""
        self._capture.release()


def _prominence(face: Face) -> tuple[float, float]:
    """Who stands nearest first, the more certain one on a tie: as `main_face` has it."""
    return -face.area, -face.score


def _try(photo: Photo, face: Face, template: npt.ArrayLike) -> FaceCrop | FaceError:
    try:
        return _aligned(photo, face, template)
    except FaceError as error:
        return error


def _aligned(photo: Photo, face: Face, template: npt.ArrayLike) -> FaceCrop:
    aligned = align(photo.pixels, face.points, template)
    return FaceCrop(aligned.crop, aligned.crop_from_photo, face.box, face.score)
