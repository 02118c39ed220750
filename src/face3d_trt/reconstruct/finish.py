"""The last stages for one picture: coefficients to products, products to a folder, and the picture's record."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import Face3DError, InputError, MissingError, StorageError
from face3d_trt.reconstruct.results import Failure, done, failed, write_folder

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels
    from face3d_trt.reconstruct.decoder import FaceDecoder
    from face3d_trt.reconstruct.messages import Setup
    from face3d_trt.reconstruct.sources import Item

_NOT_A_NAME = re.compile(r"[^\w.-]+")
_LONGEST_STEM = 100  # bytes: file systems take 255 for a name, endings included
Timed = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Placed:
    """A face whose crop is with the engine.

    Attributes:
        row: Of its crop among the picture's, or the group's.
        matrix: See `stages.FaceCrop`, as `box` and `score`.
    """

    row: int
    matrix: npt.NDArray[np.float64]
    box: tuple[float, float, float, float] | None = None
    score: float | None = None


@dataclass(frozen=True)
class Prepared:
    """A picture with its faces.

    Attributes:
        shape: Height and width of the photo, or of an array's rows.
        count: Faces that are there.
        faces: Those that are taken.
    """

    shape: tuple[int, int]
    count: int
    faces: tuple[Placed, ...]


class Finisher:
    """Makes the results of pictures.

    Args:
        setup: What the run is about.
        work: Folder for what is being written; nobody else's.
        timed: Given "products" and "write", what notes how long that takes.
    """

    def __init__(self, setup: Setup, work: Path, timed: Timed) -> None:
        self._setup, self._work, self._timed = setup, work, timed
        self._decoder = _decoder(setup) if setup.face is not None else None
        self._written = 0

    def finish(
        self,
        item: Item,
        outcome: Prepared | Failure,
        photo: Callable[[], Pixels],
        coeffs: npt.NDArray[np.float32],
    ) -> dict[str, Any]:
        """Write the files of a picture.

        Args:
            item: The picture.
            outcome: What became of it so far.
            photo: Gives the photo, (height, width, 3), where a product is made from it.
            coeffs: (N, 257), of which `Placed.row` are the rows; of an array's rows, theirs.

        Returns:
            Its record.

        Raises:
            MissingError: A package is not installed; StorageError where the disk is full.
        """
        facts: dict[str, Any] = {"rows": [item.start, item.start + item.count]} if item.kind == "rows" else {}
        if isinstance(outcome, Failure):
            return failed(item.name, outcome, **facts)
        height, width = outcome.shape
        facts |= {"size": [width, height], "faces": outcome.count}
        problems: list[str] = []
        with self._timed("products"):
            if item.kind == "rows" and not self._setup.keeps_photos:
                files = _block(item, coeffs, facts)
            else:
                files = self._faces(item, outcome, photo, coeffs, facts, problems)
        if not files:
            return failed(item.name, Failure("products", problems[0]), **facts)
        with self._timed("write"):
            self._written += 1
            try:
                write_folder(self._setup.output / item.name, files, self._work / str(self._written))
            except StorageError as error:
                if not _is_too_long(error):
                    raise
                return failed(item.name, Failure("write", error.problem), **facts)
        return done(item.name, {name: len(content) for name, content in files.items()}, **facts)

    def _faces(
        self,
        item: Item,
        outcome: Prepared,
        photo: Callable[[], Pixels],
        coeffs: npt.NDArray[np.float32],
        facts: dict[str, Any],
        problems: list[str],
    ) -> dict[str, bytes]:
        """The files of each face; what is taken goes to `facts`, what goes wrong to `problems` as well."""
        files: dict[str, bytes] = {}
        facts["taken"] = taken = list[dict[str, Any]]()
        for number, face in enumerate(outcome.faces):
            stem = _stem(item.name) + (f"-{number}" if self._setup.faces == "all" else "")
            try:
                files |= self._face(item, face, photo, coeffs[face.row].copy(), stem)
                taken.append(_shown(face, stem))
            except Exception as error:
                problems.append(failure_of("products", error).reason)
                taken.append(_shown(face, None) | {"reason": problems[-1]})
        return files

    def _face(
        self, item: Item, face: Placed, photo: Callable[[], Pixels], coeffs: npt.NDArray[np.float32], stem: str
    ) -> Mapping[str, bytes]:
        if not self._setup.keeps_photos:  # as bytes, without a morphable model: a hundred times as fast as all in words
            if not np.isfinite(coeffs).all():
                raise InputError("the coefficients are not finite")
            return {f"{stem}.coeffs.npy": _npy(coeffs)}
        from face3d_trt.reconstruct.products import make_products

        assert self._decoder is not None
        facts = {"photo": item.name, "box": face.box, "score": face.score}
        return make_products(self._decoder, photo(), face.matrix, coeffs, stem, self._setup.products, facts)


def failure_of(stage: str, error: Exception) -> Failure:
    """What an exception says of the picture at which it was raised.

    Raises:
        MissingError: It is about the machine, and every picture would end so.
    """
    if isinstance(error, MissingError):
        raise error
    if isinstance(error, MemoryError):
        return Failure(stage, "memory is too short for it")
    if isinstance(error, Face3DError):
        return Failure(stage, error.problem)
    return Failure(stage, f"{type(error).__name__}: {error}")  # of a library, about this picture: the others go on


def _is_too_long(error: StorageError) -> bool:
    """Whether it is about this picture's path, and not about the disk."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENAMETOOLONG


def _decoder(setup: Setup) -> FaceDecoder:
    """What all faces share, computed before the first one comes."""
    from face3d_trt.reconstruct.products import load_face_decoder

    assert setup.face is not None
    decoder = load_face_decoder(setup.face, setup.checkpoint_sha256)
    decoder.prepare(setup.products)
    return decoder


def _block(item: Item, coeffs: npt.NDArray[np.float32], facts: dict[str, Any]) -> dict[str, bytes]:
    """The coefficients of an array's rows, as an array."""
    bad = np.flatnonzero(~np.isfinite(coeffs).all(axis=1))
    if len(bad):
        facts["not_finite"] = (bad + item.start).tolist()
    return {"coeffs.npy": _npy(coeffs)}


def _npy(array: npt.NDArray[np.float32]) -> bytes:
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


def _stem(name: str) -> str:
    """What the files of a picture are called: safe inside an OBJ and everywhere else."""
    last = name.rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    safe = _NOT_A_NAME.sub("_", stem).lstrip(".").encode()[:_LONGEST_STEM]
    return safe.decode(errors="ignore") or "face"


def _shown(face: Placed, stem: str | None) -> dict[str, Any]:
    """A face in the record."""
    shown: dict[str, Any] = {"stem": stem} if stem else {}
    shown["crop_from_photo"] = [[round(float(value), 6) for value in row] for row in face.matrix]
    if face.box is not None:
        shown |= {"box": [round(edge, 1) for edge in face.box], "score": round(face.score or 0.0, 4)}
    return shown
