"""A process that holds one engine, takes crops where the fronts have put them, and answers in batches."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from face3d_trt.errors import Face3DError, UsageError
from face3d_trt.names import COEFFS, CROP
from face3d_trt.reconstruct.engines import EngineSetup, describe, open_for
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.messages import Broken, Ready
from face3d_trt.runtime.copying import copy
from face3d_trt.serving.batches import BatchQueue
from face3d_trt.serving.slots import Slab
from face3d_trt.serving.wire import DONE, EXPIRED, FAILED, Answer, Records, Request, accept, receive

if TYPE_CHECKING:
    from face3d_trt.runtime.interface import FaceEngine

MOST_BATCH = 256  # unless a larger one is asked for: beyond it an H200 gains little
EXIT_FAILED, EXIT_STUCK = 1, 70
_STUCK_S = 60.0  # that one batch may take
_GRAPHS = 16  # rows up to which the engine makes a CUDA graph for each size
_log = logging.getLogger("face3d_trt.serving")


@dataclass(frozen=True)
class Replica:
    """What an engine's process is told.

    Attributes:
        setup: Plan and device.
        path: Of the socket that it listens on.
        max_batch: Most crops of a batch; None: the plan's most, at most MOST_BATCH.
        max_wait_s: That a crop waits for others while a batch runs.
    """

    setup: EngineSetup
    path: Path
    max_batch: int | None
    max_wait_s: float


class _Asked(NamedTuple):
    """A request with the front that it came from."""

    front: _Front
    request: Request


def run(connection: Connection, replica: Replica) -> None:
    """The process's main loop: says Ready once it listens, ends when it is told anything, or its parent is gone."""
    try:
        engine = open_for(replica.setup)
        ready = describe(engine, replica.setup.device != CPU)
        _check_size(ready)
        most = max(ready.batch[0], min(replica.max_batch or MOST_BATCH, ready.batch[1]))
        engine.warm_up(warm_sizes(most, ready.batch[0], on_gpu=ready.padded))
    except Face3DError as error:
        connection.send(Broken(error))
        return
    queue: BatchQueue[_Asked] = BatchQueue(most, replica.max_wait_s)
    server = EngineServer(engine, queue, (ready.batch[0], most), lanes=engine.depth if ready.padded else 1)
    server.listen(replica.path)
    connection.send(ready)
    while not connection.poll(1.0):
        if server.failed or server.stuck(_STUCK_S):
            os._exit(EXIT_FAILED if server.failed else EXIT_STUCK)
    queue.close()
    server.join()
    engine.close()


def warm_sizes(most: int, least: int, *, on_gpu: bool) -> tuple[int, ...]:
    """Batches that are run before the first request."""
    powers = {1 << power for power in range(most.bit_length())}
    sizes = powers | set(range(1, _GRAPHS + 1)) | {most} if on_gpu else {1, min(4, most)}
    return tuple(sorted(size for size in sizes if least <= size <= most)) or (least,)


class EngineServer:
    """Threads around an engine: one for each front, which takes requests, and `lanes` that run batches.

    Args:
        engine: Open, and warm.
        queue: Where requests wait.
        rows: That the engine wants at least, smaller batches being filled up; and that most batches have at most.
        lanes: Batches at the same time.

    Attributes:
        failed: Whether the engine cannot go on.
    """

    def __init__(self, engine: FaceEngine, queue: BatchQueue[_Asked], rows: tuple[int, int], *, lanes: int) -> None:
        from face3d_trt.serving.metrics import BATCH, STAGE

        self._engine, self._queue, self._rows = engine, queue, rows
        self._batch_sizes, self._seconds = BATCH, STAGE.labels("infer")
        self.failed = False
        self._begun: dict[int, float] = {}
        self._lanes = [threading.Thread(target=self._work, args=(lane,), daemon=True) for lane in range(lanes)]

    def listen(self, path: Path) -> None:
        """Let fronts connect; the path appears, or leads here and no longer to a former process, when they can."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        listener.bind(str(beside))
        listener.listen()
        beside.rename(path)
        for lane in self._lanes:
            lane.start()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def join(self) -> None:
        """Wait for what runs, once the queue is closed."""
        for lane in self._lanes:
            lane.join()

    def stuck(self, seconds: float) -> bool:
        """Whether a batch has been running for so long."""
        return any(time.monotonic() - begun > seconds for begun in list(self._begun.values()))

    def _accept(self, listener: socket.socket) -> None:
        while True:
            link, _ = listener.accept()
            try:
                rows, file = accept(link)
            except OSError:
                link.close()
                continue
            front = _Front(link, Slab(rows, file))
            os.close(file)
            threading.Thread(target=self._read, args=(front,), daemon=True).start()

    def _read(self, front: _Front) -> None:
        records = Records(Request)
        while (requests := receive(front.link, records)) is not None:
            for request in requests:
                if request.start + request.rows > front.slab.rows:  # cannot be; reading there would crash
                    front.answer([Answer(request.ticket, FAILED)])
                    continue
                self._queue.put(_Asked(front, request), request.rows)
        front.close()

    def _work(self, lane: int) -> None:
        buffer = _Buffer(self._engine, *self._rows)
        while (batch := self._queue.take()) is not None:
            self._begun[lane] = time.monotonic()
            try:
                self._run(buffer, batch)
            finally:
                self._begun.pop(lane, None)
                self._queue.done()

    def _run(self, buffer: _Buffer, batch: list[_Asked]) -> None:
        now = time.monotonic()
        late = [each for each in batch if each.request.deadline < now or each.front.gone]
        asked = [each for each in batch if each.request.deadline >= now and not each.front.gone]
        _answer(late, EXPIRED)
        if not asked or self.failed:
            _answer(asked, FAILED)
            return
        began = time.perf_counter()
        try:
            self._infer(buffer, asked)
        except Exception:  # CUDA's and ONNX Runtime's, beside ours
            _log.exception("the engine failed; its process ends and is replaced")
            _answer(asked, FAILED)
            self.failed = True
            return
        _answer(asked, DONE)
        self._seconds.observe(time.perf_counter() - began)
        self._batch_sizes.observe(sum(each.request.rows for each in asked))

    def _infer(self, buffer: _Buffer, asked: list[_Asked]) -> None:
        views = [front.slab.crops[start : start + rows] for front, (_, start, rows, _) in asked]
        coeffs = self._engine(buffer.fill(views), outputs=[COEFFS])[COEFFS]
        at = 0
        for front, (_, start, rows, _) in asked:
            front.slab.coeffs[start : start + rows] = coeffs[at : at + rows]
            at += rows


class _Buffer:
    """One lane's memory that the engine reads from: page-locked, on a GPU."""

    def __init__(self, engine: FaceEngine, least: int, most: int) -> None:
        self._engine, self._least = engine, least
        self._floats = engine.inputs[0].dtype == "float32"
        self._array = self._new(max(least, most))

    def fill(self, crops: list[np.ndarray]) -> np.ndarray:
        """The crops as the engine takes them, valid until the next call."""
        rows = max(sum(map(len, crops)), self._least)
        if len(self._array) < rows:  # one request that is larger than a batch
            self._array = self._new(rows)
        at = 0
        for part in crops:
            place = self._array[at : at + len(part)]
            if self._floats:
                np.divide(part.transpose(0, 3, 1, 2), np.float32(255), out=place, dtype=np.float32, casting="unsafe")
            else:
                copy(place, part)
            at += len(part)
        self._array[at:rows] = 0
        return self._array[:rows]

    def _new(self, rows: int) -> np.ndarray:
        shape = (rows, 3, CROP, CROP) if self._floats else (rows, CROP, CROP, 3)
        array = self._engine.pinned(rows)
        return array if array.shape == shape else np.zeros(shape, self._engine.inputs[0].dtype)


class _Front:
    """A front's connection; any thread may answer."""

    def __init__(self, link: socket.socket, slab: Slab) -> None:
        self.link, self.slab = link, slab
        self.gone = False
        self._lock = threading.Lock()

    def answer(self, answers: list[Answer]) -> None:
        """Send; a front that is gone has nobody who waits."""
        data = b"".join(each.pack() for each in answers)
        with self._lock, suppress(OSError):
            self.link.sendall(data)

    def close(self) -> None:
        """It hung up."""
        self.gone = True
        self.link.close()


def _answer(asked: list[_Asked], status: int) -> None:
    by_front: dict[_Front, list[Answer]] = defaultdict(list)
    for front, request in asked:
        by_front[front].append(Answer(request.ticket, status))
    for front, answers in by_front.items():
        front.answer(answers)


def _check_size(ready: Ready) -> None:
    if any(low <= CROP <= high and left <= CROP <= right for low, high, left, right in ready.sizes):
        return
    raise UsageError(
        f"this plan does not take crops of {CROP}x{CROP} px: its profiles are for others",
        allowed=f"a plan with a profile for {CROP}x{CROP}",
        run="face3d-trt build --fp16",
    )
