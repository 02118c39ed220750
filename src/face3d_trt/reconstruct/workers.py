"""A process that reads, detects, aligns, bakes and writes: one picture after the other, what is asked for next."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import Face3DError, FaceError, ImageError
from face3d_trt.faces.detect import detector as find_detector
from face3d_trt.faces.images import Photo
from face3d_trt.names import CROP
from face3d_trt.reconstruct.finish import Finisher, Placed, Prepared, failure_of
from face3d_trt.reconstruct.messages import Answer, Broken, Run, Setup, Task
from face3d_trt.reconstruct.results import WORK, Failure, line
from face3d_trt.reconstruct.shared import Bays, Memory
from face3d_trt.reconstruct.stages import VideoFrames, decode, find_faces, read_rows, scaled

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels
    from face3d_trt.reconstruct.sources import Item

DIED = "the process that worked on it died: the file is damaged in a way that a library does not survive, or memory"


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


class Worker:
    """Does tasks. One for each process, since detector and decoder are not shared.

    Args:
        setup: What the run is about.
        memory: Of the bays.
        number: Of the process in the run.
    """

    def __init__(self, setup: Setup, memory: Memory, number: int) -> None:
        be_one_thread()
        self._setup, self._bays = setup, Bays(memory, *setup.bays)
        self._detector = find_detector(setup.detector, setup.landmarks)
        self._finisher = Finisher(setup, setup.output / WORK / str(number), self._timed)
        self._video: tuple[str, VideoFrames | ImageError] | None = None
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
        found: list[Prepared | Failure] = []
        runs: list[Run] = []
        for index, item in enumerate(task.items):
            at[0] = index
            outcome = Failure("decode", DIED) if index in task.dead else self._prepare_one(task, item, rows, runs)
            rows = runs[-1][1] if runs else 0
            found.append(outcome)
        at[0] = -1
        return Answer(task.group, "prepare", _joined(runs), pickle.dumps(found), seconds=self._seconds)

    def _prepare_one(self, task: Task, item: Item, row: int, runs: list[Run]) -> Prepared | Failure:
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
        except Exception as error:
            return failure_of(stage[0], error)

    def _rows(self, bay: int, item: Item, runs: list[Run]) -> Prepared | Failure:
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
        face = Placed(0, scaled(*item.shape), None, None)
        return Prepared(item.shape, 1, (face,))

    def _faces(self, task: Task, item: Item, photo: Photo, row: int, runs: list[Run]) -> Prepared:
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
                faces.append(Placed(row, face.matrix, face.box, face.score))
                row += 1
        if self._setup.keeps_photos and not task.photo:
            self._keep(task.bay, photo)
        height, width = photo.pixels.shape[:2]
        return Prepared((height, width), found.count, tuple(faces))

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
                outcome = Failure("products", DIED)
            record = self._finisher.finish(item, outcome, *self._of(task.bay, item, outcome))
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

    def _of(
        self, bay: int, item: Item, outcome: Prepared | Failure
    ) -> tuple[Callable[[], Pixels], npt.NDArray[np.float32]]:
        """Where the photo of a picture is, and the coefficients of its group."""
        shape = outcome.shape if isinstance(outcome, Prepared) else (0, 0)
        if item.kind == "rows":
            return lambda: self._bays.crops(bay, 0, 1, shape)[0], self._bays.coeffs(bay, 0, item.count)
        return lambda: self._bays.photo(bay, shape), self._bays.coeffs(bay, 0, self._bays.layout.rows)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - start


def be_one_thread() -> None:
    """There is a process for each core; OpenCV's threads would be too many."""
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(1)


def _joined(runs: list[Run]) -> tuple[Run, ...]:
    """Neighbours of one size as one run."""
    found: list[Run] = []
    for start, stop, shape in runs:
        if found and found[-1][1] == start and found[-1][2] == shape:
            found[-1] = (found[-1][0], stop, shape)
        else:
            found.append((start, stop, shape))
    return tuple(found)
