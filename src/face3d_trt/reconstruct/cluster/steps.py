"""What runs on the nodes, from parcels to parcels: two functions for Ray's tasks and a class for its actors.

No exception leaves them: what concerns a picture becomes its record, what concerns the run travels to the driver.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import Face3DError, FaceError, ImageError, MissingError, StoppedError, StorageError
from face3d_trt.faces.detect import Detector, detector
from face3d_trt.faces.images import Photo
from face3d_trt.names import CROP, MAX_SIDE
from face3d_trt.optional import require
from face3d_trt.reconstruct.clock import Clock
from face3d_trt.reconstruct.cluster.attempts import attempt
from face3d_trt.reconstruct.cluster.parcels import Job, Parcel, pack, unpack
from face3d_trt.reconstruct.engines import describe, is_short_of_memory, open_for
from face3d_trt.reconstruct.finish import Finisher, Placed, Prepared, failure_of
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.preparing import DIED
from face3d_trt.reconstruct.processes import QUIET
from face3d_trt.reconstruct.queues import Video
from face3d_trt.reconstruct.results import WORK, Failure, failed, line
from face3d_trt.reconstruct.sources import Item
from face3d_trt.reconstruct.stages import VideoFrames, decode, find_faces, infer, read_rows, scaled
from face3d_trt.reconstruct.workers import be_one_thread

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels
    from face3d_trt.reconstruct.engines import EngineSetup
    from face3d_trt.reconstruct.messages import Ready
    from face3d_trt.runtime.interface import FaceEngine

_UNPROVEN = "engines"  # folder in WORK: a file for each engine that was opened and has not inferred anything since


def prepare(table: Any, job: Job) -> Iterator[Any]:
    """Decode, detect, align."""
    yield from _each("prepare", list(unpack(table)), job, lambda parcel: Workshop.of(job).prepare(parcel))


def finish(table: Any, job: Job) -> Iterator[Any]:
    """Products, files, records."""
    node = require("ray", "ray", "--ray").get_runtime_context().get_node_id()
    yield from _each(
        "finish", list(unpack(table)), job, lambda parcel: [replace(Workshop.of(job).finish(parcel), node=node)]
    )


def _each(stage: str, parcels: list[Parcel], job: Job, do: Callable[[Parcel], Iterable[Parcel]]) -> Iterator[Any]:
    """One after the other; those that bring processes down are left out."""
    try:
        with attempt(job.setup.output / WORK, stage, [parcel.item.name for parcel in parcels]) as this:
            for parcel in parcels:
                if parcel.item.name in this.fatal:
                    parcel = _dead(parcel, stage)
                else:
                    this.at(parcel.item.name)
                yield from (pack([each]) for each in do(parcel))
    except StorageError as error:
        yield pack([Parcel(parcels[0].item, stop=error)])


def _dead(parcel: Parcel, stage: str) -> Parcel:
    """A picture that has failed for good."""
    failure = Failure("decode" if stage == "prepare" else "products", DIED)
    if parcel.item.kind == "video" and stage == "prepare":
        return Parcel(parcel.item, line=line(failed(parcel.item.name, failure)))
    return Parcel(parcel.item, outcome=failure)


def describe_engine(setup: EngineSetup) -> Ready | Face3DError:
    """Open an engine, say what it is, close it."""
    try:
        engine = open_for(setup)
    except Face3DError as error:
        return error
    try:
        return describe(engine, setup.device != CPU)
    finally:
        engine.close()


class Workshop:
    """What a process keeps from one task to the next: detector, morphable model, a folder for half-written files.

    Args:
        job: What the run is about.
    """

    _here: Workshop | None = None

    @classmethod
    def of(cls, job: Job) -> Workshop:
        """This process's, for this run."""
        if cls._here is None or cls._here.job.run != job.run:
            cls._here = cls(job)
        return cls._here

    def __init__(self, job: Job) -> None:
        os.environ.update(QUIET)
        be_one_thread()
        self.job, self._setup = job, job.setup
        self._detector: Detector | None = None
        self._finisher: Finisher | None = None
        self._clock = Clock()

    def prepare(self, parcel: Parcel) -> Iterator[Parcel]:
        """A picture with its crops; of a video, all frames, and behind them the video itself with its line."""
        try:
            if parcel.line or parcel.outcome is not None:
                yield parcel
            elif parcel.item.kind == "video":
                yield from self._video(parcel)
            else:
                yield self._timed(parcel, lambda: decode(parcel.item.path))
        except Face3DError as error:  # whatever is about this picture is in its outcome already
            yield replace(parcel, stop=error)

    def finish(self, parcel: Parcel) -> Parcel:
        """A picture with its line."""
        if parcel.stop or parcel.line:
            return parcel
        assert parcel.outcome is not None
        try:
            record = self._result(parcel)
        except MissingError as error:
            return Parcel(parcel.item, stop=error)
        return Parcel(parcel.item, seconds=parcel.seconds | self._clock.take(), line=line(record))

    def _result(self, parcel: Parcel) -> dict[str, Any]:
        assert parcel.outcome is not None
        if self._finisher is None:
            work = self._setup.output / WORK / uuid.uuid4().hex
            self._finisher = Finisher(self._setup, work, self._clock.timed)
        try:
            return self._finisher.finish(parcel.item, parcel.outcome, lambda: _photo(parcel), parcel.coeffs)
        except Exception as error:
            failure = failure_of("products", error)
        return self._finisher.finish(parcel.item, failure, lambda: _photo(parcel), parcel.coeffs)

    def _video(self, parcel: Parcel) -> Iterator[Parcel]:
        item, number, problem, announced = parcel.item, 0, "", 0
        try:
            frames = VideoFrames(item.path)
        except ImageError as error:
            problem = error.problem
        else:
            announced = frames.announced
            while photo := self._frame(frames, number, parcel.skip):
                if number not in parcel.skip:
                    frame = Parcel(Item(f"{item.name}/{number:06}", item.path, "video", number))
                    yield self._timed(frame, lambda photo=photo: photo)  # type: ignore[misc]
                number += 1
            frames.close()
        yield replace(parcel, line=Video(item).last_line(number, announced, problem))

    def _frame(self, frames: VideoFrames, number: int, skip: frozenset[int]) -> Photo | None:
        """A frame; of one that is done, anything."""
        if number in skip:
            return Photo(np.empty((0, 0, 3), np.uint8), 1.0)
        with self._clock.timed("decode"):
            return frames.frame(number)

    def _timed(self, parcel: Parcel, read: Callable[[], Photo]) -> Parcel:
        found = self._prepared(parcel, read)
        return replace(found, seconds=self._clock.take())

    def _prepared(self, parcel: Parcel, read: Callable[[], Photo]) -> Parcel:
        stage, item = "decode", parcel.item
        if item.kind == "not":
            return replace(parcel, outcome=Failure("source", item.reason))
        try:
            if item.kind == "rows":
                return self._rows(parcel)
            with self._clock.timed("decode"):
                photo = read()
            stage = "detect"
            return self._faces(parcel, photo)
        except Exception as error:
            return replace(parcel, outcome=failure_of(stage, error))

    def _rows(self, parcel: Parcel) -> Parcel:
        item = parcel.item
        self._check(item.shape)
        crops = np.empty((item.count, *item.shape, 3), np.uint8)
        with self._clock.timed("decode"):
            read_rows(item, crops)
        outcome = Prepared(item.shape, 1, (Placed(0, scaled(*item.shape)),))
        return replace(parcel, outcome=outcome, crops=crops, is_crop=self._setup.keeps_photos)

    def _faces(self, parcel: Parcel, photo: Photo) -> Parcel:
        setup = self._setup
        with self._clock.timed("detect"):
            if self._detector is None:
                self._detector = detector(setup.detector, setup.landmarks)
            found = find_faces(photo, parcel.item.name, self._detector, setup.template, setup.faces, setup.sizes)
            for face in found.faces:
                self._check((face.crop.shape[0], face.crop.shape[1]))
        placed = tuple(Placed(row, face.matrix, face.box, face.score) for row, face in enumerate(found.faces))
        height, width = photo.pixels.shape[:2]
        is_crop = setup.keeps_photos and found.faces[0].crop is photo.pixels
        return replace(
            parcel,
            outcome=Prepared((height, width), found.count, placed),
            crops=np.stack([face.crop for face in found.faces]),
            photo=photo.pixels if setup.keeps_photos and parcel.item.kind == "video" and not is_crop else None,
            is_crop=is_crop,
        )

    def _check(self, shape: tuple[int, int]) -> None:
        inside = any(a <= shape[0] <= b and c <= shape[1] <= d for a, b, c, d in self._setup.sizes)
        if not (inside and max(shape) <= MAX_SIDE) and shape != (CROP, CROP):
            raise FaceError(f"the engine takes no crops of {shape[1]}x{shape[0]} px")


class EngineActor:
    """Holds an engine.

    An engine that fails is opened again. If it fails again, the process ends and Ray starts another, on this node or
    another one; the pictures are inferred there. The folder of results remembers how often that has happened.

    Args:
        job: What the run is about.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._engine: FaceEngine | None = None
        self._stop: Face3DError | None = None
        self._mark = job.setup.output / WORK / _UNPROVEN / uuid.uuid4().hex
        self._most = job.batch[1]
        try:
            self._note("it ended while it was opened, or with its first batch")
            self._engine = open_for(job.engine)
        except Face3DError as error:
            self._stop = error

    def __call__(self, table: Any) -> Any:
        """Coefficients of all crops in a table of parcels."""
        parcels = list(unpack(table))
        self.infer(parcels)
        return pack(parcels)

    def infer(self, parcels: list[Parcel]) -> None:
        """Put coefficients in the place of crops."""
        if self._stop is None:
            start = time.perf_counter()
            self._infer([parcel for parcel in parcels if parcel.crops is not None])
            parcels[0].seconds["infer"] = time.perf_counter() - start
        for parcel in parcels:
            parcel.stop = parcel.stop or self._stop
            if not parcel.is_crop:
                parcel.crops = None

    def _infer(self, parcels: list[Parcel]) -> None:
        """Crops of one size go together, whichever picture they are from."""
        by_shape: dict[tuple[int, ...], list[Parcel]] = {}
        for parcel in parcels:
            assert parcel.crops is not None
            by_shape.setdefault(parcel.crops.shape[1:], []).append(parcel)
        for some in by_shape.values():
            counts = [len(parcel.crops) for parcel in some if parcel.crops is not None]
            coeffs = self._twice(np.concatenate([parcel.crops for parcel in some if parcel.crops is not None]))
            for parcel, part in zip(some, np.split(coeffs, np.cumsum(counts)[:-1]), strict=True):
                parcel.coeffs = part
        self._mark.unlink(missing_ok=True)

    def _twice(self, crops: Pixels) -> npt.NDArray[np.float32]:
        try:
            return self._all(crops)
        except Exception:  # CUDA's and ONNX Runtime's, beside ours
            pass
        try:
            self._reopen()
            return self._all(crops)
        except Exception as error:
            self._note(error.problem if isinstance(error, Face3DError) else f"{type(error).__name__}: {error}")
            os._exit(1)  # no exception: that would cost the pictures their turn

    def _all(self, crops: Pixels) -> npt.NDArray[np.float32]:
        """In batches that are filled up where results depend on their size; smaller ones when memory is short."""
        try:
            parts = [self._batch(crops[at : at + self._most]) for at in range(0, len(crops), self._most)]
        except Exception as error:
            if not is_short_of_memory(error) or self._most // 2 < self._job.batch[0]:
                raise
            self._most //= 2
            return self._all(crops)
        return np.concatenate(parts)

    def _batch(self, crops: Pixels) -> npt.NDArray[np.float32]:
        assert self._engine is not None
        count = len(crops)
        rows = max(count, self._job.batch[0], self._most if self._job.engine.device != CPU else 0)
        if rows > count:
            crops = np.concatenate([crops, np.zeros((rows - count, *crops.shape[1:]), np.uint8)])
        return infer(self._engine, crops)[:count]

    def _reopen(self) -> None:
        assert self._engine is not None
        self._engine.close()
        self._engine = open_for(self._job.engine)

    def _note(self, problem: str) -> None:
        """Say in the folder of results that an engine has still to prove itself.

        Raises:
            StoppedError: Too many have not.
        """
        folder = self._mark.parent
        folder.mkdir(parents=True, exist_ok=True)
        if len(os.listdir(folder)) > 4 * self._job.engines:
            last = max(folder.iterdir(), key=lambda path: path.stat().st_mtime)
            raise StoppedError(f"engines fail again and again: {last.read_text()}")
        self._mark.write_text(problem)


def _photo(parcel: Parcel) -> Pixels:
    """The photo, for its texture. A file is read again: that takes a tenth of baking, and megabytes need not travel."""
    if parcel.is_crop:
        assert parcel.crops is not None
        crop: Pixels = parcel.crops[0]
        return crop
    return parcel.photo if parcel.photo is not None else decode(parcel.item.path).pixels
