"""Decode, detect, align: pictures of a group into its bay, for the engine."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.errors import FaceError, ImageError
from face3d_trt.faces.detect import detector as find_detector
from face3d_trt.faces.images import Photo
from face3d_trt.names import CROP
from face3d_trt.reconstruct.finish import Placed, Prepared, failure_of
from face3d_trt.reconstruct.messages import Answer, Run, Setup, Task
from face3d_trt.reconstruct.results import Failure
from face3d_trt.reconstruct.stages import VideoFrames, decode, find_faces, read_rows, scaled

if TYPE_CHECKING:
    from face3d_trt.reconstruct.clock import Clock
    from face3d_trt.reconstruct.shared import Bays
    from face3d_trt.reconstruct.sources import Item

DIED = "the process that worked on it died: the file is damaged in a way that a library does not survive, or memory"


class Preparer:
    """Brings pictures into bays.

    Args:
        setup: What the run is about.
        bays: Where to.
        clock: Told how long it takes.
    """

    def __init__(self, setup: Setup, bays: Bays, clock: Clock) -> None:
        self._setup, self._bays, self._clock = setup, bays, clock
        self._detector = find_detector(setup.detector, setup.landmarks)
        self._video: tuple[str, VideoFrames | ImageError] | None = None

    def frame(self, task: Task) -> Answer:
        """A frame of a video into the bay."""
        (item,) = task.items
        failures: tuple[tuple[str, str, str], ...] = ()
        place, announced = None, 0
        with self._clock.timed("decode"):
            video = self._opened(item.path)
            if isinstance(video, ImageError):
                failures = ((item.path, "decode", video.problem),)
            else:
                announced = video.announced
                photo = video.frame(item.start)
                place = None if photo is None else self._keep(task.bay, photo)
        counts = {"announced": announced}
        return Answer(task.group, "frame", photo=place, seconds=self._clock.take(), failures=failures, counts=counts)

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

    def prepare(self, task: Task) -> Answer:
        """Every picture of the group, as far as it comes: what goes wrong with one is its outcome.

        Raises:
            MissingError: A package is not installed.
        """
        at, rows = self._bays.at(task.bay), 0
        found: list[Prepared | Failure] = []
        runs: list[Run] = []
        for index, item in enumerate(task.items):
            at[0] = index
            outcome = Failure("decode", DIED) if index in task.dead else self._prepare_one(task, item, rows, runs)
            rows = runs[-1][1] if runs else 0
            found.append(outcome)
        at[0] = -1
        return Answer(task.group, "prepare", _joined(runs), pickle.dumps(found), seconds=self._clock.take())

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
                with self._clock.timed("decode"):
                    photo = decode(item.path)
            stage[0] = "detect"
            return self._faces(task, item, photo, row, runs)
        except Exception as error:
            return failure_of(stage[0], error)

    def _rows(self, bay: int, item: Item, runs: list[Run]) -> Prepared | Failure:
        if not self._takes(item.shape):
            return Failure("decode", f"the engine takes no crops of {item.shape[1]}x{item.shape[0]} px")
        place = self._bays.crops(bay, 0, item.count, item.shape)
        with self._clock.timed("decode"):
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
        with self._clock.timed("detect"):
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


def _joined(runs: list[Run]) -> tuple[Run, ...]:
    """Neighbours of one size as one run."""
    found: list[Run] = []
    for start, stop, shape in runs:
        if found and found[-1][1] == start and found[-1][2] == shape:
            found[-1] = (found[-1][0], stop, shape)
        else:
            found.append((start, stop, shape))
    return tuple(found)
