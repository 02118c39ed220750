"""A process that reads, detects, aligns, bakes and writes: one picture after the other, what is asked for next."""

from __future__ import annotations

import io
import pickle
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import Face3DError, FaceError, ImageError, InputError, MissingError
from face3d_trt.faces.detect import detector as find_detector
from face3d_trt.faces.images import Photo
from face3d_trt.names import CROP
from face3d_trt.reconstruct.messages import Answer, Broken, Run, Setup, Task
from face3d_trt.reconstruct.results import WORK, Failure, done, failed, line, write_folder
from face3d_trt.reconstruct.shared import Bays, Memory
from face3d_trt.reconstruct.stages import VideoFrames, decode, find_faces, read_rows, scaled

if TYPE_CHECKING:
    from face3d_trt.reconstruct.decoder import FaceDecoder
    from face3d_trt.reconstruct.sources import Item

_NOT_A_NAME = re.compile(r"[^\w.-]+")
_LONGEST_STEM = 100
_DIED = "the process that worked on it died: the file is damaged in a way that a library does not survive, or memory"


def work(connection: Connection, memory: Memory, number: int) -> None:
    """The process's main loop: first a Setup, then Tasks, until None or the end of the connection."""
    setup: Setup | None = connection.recv()
    if setup is None:
        return
    try:
        worker = Worker(setup, memory, number)
        while task := connection.recv():
            connection.send(worker.do(task))
    except Face3DError as error:
        connection.send(Broken(error))
    except Exception as error:  # a mistake of ours: say so rather than die without a word
        connection.send(Broken(Face3DError(f"a worker failed: {type(error).__name__}: {error}")))


@dataclass(frozen=True)
class _Face:
    """What `finish` has to know about a crop."""

    row: int
    matrix: npt.NDArray[np.float64]
    box: tuple[float, float, float, float] | None
    score: float | None


@dataclass(frozen=True)
class _Prepared:
    """A picture with its faces; `shape` is that of its photo in the bay, or of its rows."""

    shape: tuple[int, int]
    count: int
    faces: tuple[_Face, ...]


class Worker:
    """Does tasks. One for each process, since detector and decoder are not shared.

    Args:
        setup: What the run is about.
        memory: Of the bays.
        number: Of the process in the run.
    """

    def __init__(self, setup: Setup, memory: Memory, number: int) -> None:
        _be_one_thread()
        self._setup, self._bays = setup, Bays(memory, *setup.bays)
        self._detector = find_detector(setup.detector, setup.landmarks)
        self._decoder = _decoder(setup) if setup.face is not None else None
        self._video: tuple[str, VideoFrames | ImageError] | None = None
        self._work = setup.output / WORK / str(number)
        self._written = 0
        self._seconds: dict[str, float] = {}

    def do(self, task: Task) -> Answer:
        """One task.

        Raises:
            MissingError: A package is not installed; StorageError where the disk is full.
        """
        self._seconds = {}
        does: dict[str, Callable[[Task], Answer]] = {
            "frame": self._frame,
            "prepare": self._prepare,
            "finish": self._finish,
        }
        return does[task.kind](task)

    def _frame(self, task: Task) -> Answer:
        (item,) = task.items
        failures: tuple[tuple[str, str, str], ...] = ()
        place, announced = None, 0
        with self._timed("decode"):
            video = self._opened(item.path)
            if isinstance(video, ImageError):
                failures = ((item.path, "decode", video.problem),)
            else:
                announced = video.announced
                photo = video.frame(item.start)
                place = None if photo is None else self._keep(task.bay, photo)
        counts = {"announced": announced}
        return Answer(task.group, "frame", photo=place, seconds=self._seconds, failures=failures, counts=counts)

    def _opened(self, path: str) -> VideoFrames | ImageError:
        """The video, or why there is none; remembered until another is asked for."""
        if self._video is None or self._video[0] != path:
            if self._video and isinstance(self._video[1], VideoFrames):
                self._video[1].close()
            try:
                self._video = (path, VideoFrames(path))
            except ImageError as error:
                self._video = (path, error)
        return self._video[1]

    def _prepare(self, task: Task) -> Answer:
        at, rows = self._bays.at(task.bay), 0
        found: list[_Prepared | Failure] = []
        runs: list[Run] = []
        for index, item in enumerate(task.items):
            at[0] = index
            outcome = Failure("decode", _DIED) if index in task.dead else self._prepare_one(task, item, rows, runs)
            rows = runs[-1][1] if runs else 0
            found.append(outcome)
        at[0] = -1
        return Answer(task.group, "prepare", _joined(runs), pickle.dumps(found), seconds=self._seconds)

    def _prepare_one(self, task: Task, item: Item, row: int, runs: list[Run]) -> _Prepared | Failure:
        stage = ["source"]
        try:
            if item.kind == "not":
                return Failure("source", item.reason)
            stage[0] = "decode"
            if item.kind == "rows":
                return self._rows(task.bay, item, runs)
            if task.photo:
                height, width, scale = task.photo
                photo = Photo(self._bays.photo(task.bay, (height, width)), scale)
            else:
                with self._timed("decode"):
                    photo = decode(item.path)
            stage[0] = "detect"
            return self._faces(task, item, photo, row, runs)
        except (MissingError, MemoryError) as error:
            if isinstance(error, MissingError):
                raise
            return Failure(stage[0], "memory is too short for it")
        except Face3DError as error:
            return Failure(stage[0], error.problem)
        except Exception as error:  # of a library, about this picture: the others go on
            return Failure(stage[0], f"{type(error).__name__}: {error}")

    def _rows(self, bay: int, item: Item, runs: list[Run]) -> _Prepared | Failure:
        if not self._takes(item.shape):
            return Failure("decode", f"the engine takes no crops of {item.shape[1]}x{item.shape[0]} px")
        place = self._bays.crops(bay, 0, item.count, item.shape)
        with self._timed("decode"):
            if place.flags.c_contiguous:
                read_rows(item, place)
            else:
                whole = np.empty(place.shape, np.uint8)
                read_rows(item, whole)
                place[...] = whole
        runs.append((0, item.count, item.shape))
        face = _Face(0, scaled(*item.shape), None, None)
        return _Prepared(item.shape, 1, (face,))

    def _faces(self, task: Task, item: Item, photo: Photo, row: int, runs: list[Run]) -> _Prepared:
        with self._timed("detect"):
            found = find_faces(
                photo, item.name, self._detector, self._setup.template, self._setup.faces, self._setup.sizes
            )
            faces = []
            for face in found.faces:
                shape = face.crop.shape[:2]
                if not self._takes((shape[0], shape[1])):
                    raise FaceError(f"the engine takes no crops of {shape[1]}x{shape[0]} px")
                self._bays.crops(task.bay, row, row + 1, (shape[0], shape[1]))[0] = face.crop
                runs.append((row, row + 1, (shape[0], shape[1])))
                faces.append(_Face(row, face.matrix, face.box, face.score))
                row += 1
        if self._setup.keeps_photos and not task.photo:
            self._keep(task.bay, photo)
        height, width = photo.pixels.shape[:2]
        return _Prepared((height, width), found.count, tuple(faces))

    def _takes(self, shape: tuple[int, int]) -> bool:
        inside = any(a <= shape[0] <= b and c <= shape[1] <= d for a, b, c, d in self._setup.sizes)
        return self._bays.fits(shape) and (inside or shape == (CROP, CROP))

    def _keep(self, bay: int, photo: Photo) -> tuple[int, int, float]:
        height, width = photo.pixels.shape[:2]
        self._bays.photo(bay, (height, width))[...] = photo.pixels
        return height, width, photo.scale

    def _finish(self, task: Task) -> Answer:
        at = self._bays.at(task.bay)
        lines, counts, failures = [], Counter[str](), []
        for index, (item, outcome) in enumerate(zip(task.items, pickle.loads(task.found), strict=True)):
            at[0] = index
            if index in task.dead and not isinstance(outcome, Failure):
                outcome = Failure("products", _DIED)
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
            seconds=self._seconds,
            failures=tuple(failures),
        )

    def _finish_one(self, bay: int, item: Item, outcome: _Prepared | Failure) -> dict[str, Any]:
        facts: dict[str, Any] = {"rows": [item.start, item.start + item.count]} if item.kind == "rows" else {}
        if isinstance(outcome, Failure):
            return failed(item.name, outcome, **facts)
        height, width = outcome.shape
        facts |= {"size": [width, height], "faces": outcome.count}
        files: dict[str, bytes] = {}
        problems = []
        with self._timed("products"):
            if item.kind == "rows" and not self._setup.keeps_photos:
                files = self._block(bay, item, facts)
            else:
                facts["taken"] = taken = list[dict[str, Any]]()
                for number, face in enumerate(outcome.faces):
                    stem = _stem(item.name) + (f"-{number}" if self._setup.faces == "all" else "")
                    try:
                        files |= self._face_files(bay, item, outcome, face, stem)
                        taken.append(_shown(face, stem))
                    except (FaceError, InputError) as error:
                        problems.append(error.problem)
                        taken.append(_shown(face, None) | {"reason": error.problem})
        if not files:
            return failed(item.name, Failure("products", problems[0]), **facts)
        with self._timed("write"):
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

    def _face_files(self, bay: int, item: Item, outcome: _Prepared, face: _Face, stem: str) -> Mapping[str, bytes]:
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

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - start


def _decoder(setup: Setup) -> FaceDecoder:
    """What all faces share, computed before the first one comes."""
    from face3d_trt.reconstruct.products import load_face_decoder

    assert setup.face is not None
    decoder = load_face_decoder(setup.face, setup.checkpoint_sha256)
    decoder.prepare(setup.products)
    return decoder


def _be_one_thread() -> None:
    """There is a process for each core; OpenCV's threads would be too many."""
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(1)


def _npy(array: npt.NDArray[np.float32]) -> bytes:
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


def _joined(runs: list[Run]) -> tuple[Run, ...]:
    """Neighbours of one size as one run."""
    found: list[Run] = []
    for start, stop, shape in runs:
        if found and found[-1][1] == start and found[-1][2] == shape:
            found[-1] = (found[-1][0], stop, shape)
        else:
            found.append((start, stop, shape))
    return tuple(found)


def _stem(name: str) -> str:
    """What the files of a picture are called: safe inside an OBJ and everywhere else."""
    last = name.rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    return _NOT_A_NAME.sub("_", stem)[:_LONGEST_STEM].lstrip(".") or "face"


def _shown(face: _Face, stem: str | None) -> dict[str, Any]:
    """A face in the record."""
    shown: dict[str, Any] = {"stem": stem} if stem else {}
    shown["crop_from_photo"] = [[round(float(value), 6) for value in row] for row in face.matrix]
    if face.box is not None:
        shown |= {"box": [round(edge, 1) for edge in face.box], "score": round(face.score or 0.0, 4)}
    return shown
