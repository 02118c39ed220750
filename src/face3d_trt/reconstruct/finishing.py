"""Mesh, texture, files, and the lines for the list of results."""

from __future__ import annotations

import io
import pickle
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import Face3DError, InputError, MissingError
from face3d_trt.reconstruct.messages import Answer, Setup, Task
from face3d_trt.reconstruct.preparing import DIED, Clock, Prepared, PreparedFace
from face3d_trt.reconstruct.results import WORK, Failure, done, failed, line, write_folder

if TYPE_CHECKING:
    from face3d_trt.reconstruct.decoder import FaceDecoder
    from face3d_trt.reconstruct.shared import Bays
    from face3d_trt.reconstruct.sources import Item

_NOT_A_NAME = re.compile(r"[^\w.-]+")
_LONGEST_STEM = 100


class Finisher:
    """Makes results of pictures whose coefficients are there.

    Args:
        setup: What the run is about.
        bays: Where they are.
        clock: Told how long it takes.
        number: Of the process in the run.
    """

    def __init__(self, setup: Setup, bays: Bays, clock: Clock, number: int) -> None:
        self._setup, self._bays, self._clock = setup, bays, clock
        self._decoder = _decoder(setup) if setup.face is not None else None
        self._work = setup.output / WORK / str(number)
        self._written = 0

    def finish(self, task: Task) -> Answer:
        """Files and a line for every picture of the group.

        Raises:
            StorageError: The disk is full.
        """
        at = self._bays.at(task.bay)
        lines, counts, failures = [], Counter[str](), []
        for index, (item, outcome) in enumerate(zip(task.items, pickle.loads(task.found), strict=True)):
            at[0] = index
            if index in task.dead and not isinstance(outcome, Failure):
                outcome = Failure("products", DIED)
            record = self._finish_one(task.bay, item, outcome)
            counts[record["status"]] += item.count
            if record["status"] == "failed":
                failures.append((item.name, record["stage"], record["reason"]))
            lines.append(line(record))
        at[0] = -1
        return Answer(
            task.group,
            "finish",
            lines=b"".join(lines),
            counts=counts,
            seconds=self._clock.take(),
            failures=tuple(failures),
        )

    def _finish_one(self, bay: int, item: Item, outcome: Prepared | Failure) -> dict[str, Any]:
        facts: dict[str, Any] = {"rows": [item.start, item.start + item.count]} if item.kind == "rows" else {}
        if isinstance(outcome, Failure):
            return failed(item.name, outcome, **facts)
        height, width = outcome.shape
        facts |= {"size": [width, height], "faces": outcome.count}
        with self._clock.timed("products"):
            if item.kind == "rows" and not self._setup.keeps_photos:
                files, problem = self._block(bay, item, facts), ""
            else:
                files, problem = self._faces(bay, item, outcome, facts)
        if not files:
            return failed(item.name, Failure("products", problem), **facts)
        with self._clock.timed("write"):
            self._written += 1
            work_folder = self._work / str(self._written)
            write_folder(self._setup.output / item.name, files, work_folder)
        return done(item.name, {name: len(content) for name, content in files.items()}, **facts)

    def _block(self, bay: int, item: Item, facts: dict[str, Any]) -> dict[str, bytes]:
        """The coefficients of an array's rows, as an array."""
        coeffs = self._bays.coeffs(bay, 0, item.count)
        bad = np.flatnonzero(~np.isfinite(coeffs).all(axis=1))
        if len(bad):
            facts["not_finite"] = (bad + item.start).tolist()
        return {"coeffs.npy": _npy(coeffs)}

    def _faces(self, bay: int, item: Item, outcome: Prepared, facts: dict[str, Any]) -> tuple[dict[str, bytes], str]:
        """The files of all faces, and what went wrong with the first that has none."""
        files: dict[str, bytes] = {}
        problem = ""
        facts["taken"] = taken = list[dict[str, Any]]()
        for number, face in enumerate(outcome.faces):
            stem = _stem(item.name) + (f"-{number}" if self._setup.faces == "all" else "")
            try:
                files |= self._face_files(bay, item, outcome, face, stem)
                taken.append(_shown(face, stem))
            except MissingError:
                raise
            except Exception as error:  # about this face: the others go on
                reason = error.problem if isinstance(error, Face3DError) else f"{type(error).__name__}: {error}"
                problem = problem or reason
                taken.append(_shown(face, None) | {"reason": reason})
        return files, problem

    def _face_files(
        self, bay: int, item: Item, outcome: Prepared, face: PreparedFace, stem: str
    ) -> Mapping[str, bytes]:
        coeffs = self._bays.coeffs(bay, face.row, face.row + 1)[0].copy()
        if not self._setup.keeps_photos:  # as bytes, without a morphable model: a hundred times as fast as all in words
            if not np.isfinite(coeffs).all():
                raise InputError("the coefficients are not finite")
            return {f"{stem}.coeffs.npy": _npy(coeffs)}
        from face3d_trt.reconstruct.products import make_products

        assert self._decoder is not None
        if item.kind == "rows":
            photo = self._bays.crops(bay, 0, 1, outcome.shape)[0]
        else:
            photo = self._bays.photo(bay, outcome.shape)
        facts = {"photo": item.name, "box": face.box, "score": face.score}
        return make_products(self._decoder, photo, face.matrix, coeffs, stem, self._setup.products, facts)


def _decoder(setup: Setup) -> FaceDecoder:
    """What all faces share, computed before the first one comes."""
    from face3d_trt.reconstruct.products import load_face_decoder

    assert setup.face is not None
    decoder = load_face_decoder(setup.face, setup.checkpoint_sha256)
    decoder.prepare(setup.products)
    return decoder


def _npy(array: npt.NDArray[np.float32]) -> bytes:
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


def _stem(name: str) -> str:
    """What the files of a picture are called: safe inside an OBJ and everywhere else."""
    last = name.rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    return _NOT_A_NAME.sub("_", stem)[:_LONGEST_STEM].lstrip(".") or "face"


def _shown(face: PreparedFace, stem: str | None) -> dict[str, Any]:
    """A face in the record."""
    shown: dict[str, Any] = {"stem": stem} if stem else {}
    shown["crop_from_photo"] = [[round(float(value), 6) for value in row] for row in face.matrix]
    if face.box is not None:
        shown |= {"box": [round(edge, 1) for edge in face.box], "score": round(face.score or 0.0, 4)}
    return shown
