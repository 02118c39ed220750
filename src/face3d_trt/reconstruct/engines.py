"""A process that holds one engine: crops from the bays into it, coefficients from it into the bays."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from face3d_trt.errors import Face3DError
from face3d_trt.names import COEFFS
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.messages import Batch, Broken, Inferred, Ready
from face3d_trt.reconstruct.shared import Bays, Layout, Memory
from face3d_trt.runtime.copying import copy
from face3d_trt.runtime.pieces import ANY_SIZE, limits_of

if TYPE_CHECKING:
    from face3d_trt.runtime.interface import FaceEngine, HostArray, HostResults

_SHORT = re.compile(r"out of memory|too little memory|failed to allocate|bad[_ ]alloc|cannot allocate", re.IGNORECASE)
Waiting = tuple[Batch, "HostArray | None", "Future[HostResults]", float]


@dataclass(frozen=True)
class EngineSetup:
    """What an engine process opens.

    Attributes:
        plan: A plan or an ONNX file.
        device: Index of the GPU, or CPU.
        threads: Of ONNX Runtime, on the CPU.
    """

    plan: Path
    device: int
    threads: int


def serve(connection: Connection, memory: Memory, setup: EngineSetup) -> None:
    """The process's main loop: says Ready, is told the bays, then infers Batches until None."""
    try:
        engine = open_for(setup)
    except Face3DError as error:
        connection.send(Broken(error))
        return
    try:
        connection.send(describe(engine, setup.device != CPU))
        bays: tuple[int, Layout] | None = connection.recv()
        if bays is not None:
            Server(engine, Bays(memory, *bays), connection.send).run(connection.recv)
    finally:
        engine.close()


def open_for(setup: EngineSetup) -> FaceEngine:
    """The engine itself.

    Raises:
        Face3DError: As `open_engine`.
    """
    if setup.device == CPU:
        from face3d_trt.runtime.ort import OrtEngine

        return OrtEngine(setup.plan, "cpu", check=False, threads=setup.threads)
    from face3d_trt.runtime.open import open_engine

    return open_engine(setup.plan, device=setup.device, on="gpu", check=False)


def describe(engine: FaceEngine, on_gpu: bool) -> Ready:
    """What the leader has to know about an engine."""
    layout: Any = engine.inputs[0].dtype
    limits = limits_of(engine.profiles, layout) or (ANY_SIZE,)
    most = max(each.batch[2] for each in limits)
    return Ready(
        backend=engine.backend,
        template=engine.model.template,
        checkpoint_sha256=engine.model.checkpoint_sha256,
        weights=engine.model.weights,
        sizes=tuple((each.height[0], each.height[2], each.width[0], each.width[2]) for each in limits),
        batch=(min(each.batch[0] for each in limits), most),
        depth=engine.depth,
        padded=on_gpu,
    )


def is_short_of_memory(error: BaseException | None) -> bool:
    """Whether an engine failed because memory, the GPU's or the host's, is short."""
    while error is not None:
        if type(error).__name__ == "MemoryError" or _SHORT.search(str(error)):
            return True
        error = error.__cause__
    return False


class Server:
    """Infers batches, the next being copied while the last are computed.

    Args:
        engine: Open.
        bays: Where crops are, and coefficients go.
        answer: Takes an Inferred, from any thread.
    """

    def __init__(self, engine: FaceEngine, bays: Bays, answer: Callable[[Inferred], None]) -> None:
        self._engine, self._bays, self._answer = engine, bays, answer
        self._floats = engine.inputs[0].dtype == "float32"
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._free: list[HostArray] = []  # page-locked; list operations are atomic
        self._talking = threading.Lock()
        self._idle_since = 0.0

    def run(self, receive: Callable[[], Batch | None]) -> None:
        """Until `receive` gives None or raises."""
        fetcher = threading.Thread(target=self._fetch, name="face3d-trt coefficients", daemon=True)
        fetcher.start()
        try:
            while batch := receive():
                self._begin(batch)
        finally:
            self._waiting.put(None)
            fetcher.join()

    def _begin(self, batch: Batch) -> None:
        images: HostArray | None = None
        began = time.perf_counter()
        try:
            images, lent = self._gather(batch)
            future = self._engine.submit(images, outputs=[COEFFS])
        except Exception as error:  # CUDA's and ONNX Runtime's, beside ours
            self._failed(batch, error)
            return
        self._waiting.put((batch, images if lent else None, future, began))

    def _gather(self, batch: Batch) -> tuple[HostArray, bool]:
        """The pictures of a batch as one array, and whether it is one of those that are used again."""
        bay, start, stop = batch.parts[0]
        first = self._bays.crops(bay, start, stop, batch.shape)
        if len(batch.parts) == 1 and batch.rows == stop - start and not self._floats and first.flags.c_contiguous:
            return first, False
        images, lent = self._array(batch)
        at = 0
        for bay, start, stop in batch.parts:
            crops, place = self._bays.crops(bay, start, stop, batch.shape), images[at : at + stop - start]
            if self._floats:
                np.divide(crops.transpose(0, 3, 1, 2), np.float32(255), out=place, dtype=np.float32, casting="unsafe")
            else:
                copy(place, crops)
            at += stop - start
        images[at:] = 0
        return images, lent

    def _array(self, batch: Batch) -> tuple[HostArray, bool]:
        shape = (batch.rows, 3, *batch.shape) if self._floats else (batch.rows, *batch.shape, 3)
        for index, array in enumerate(self._free):
            if array.shape == shape:
                return self._free.pop(index), True
        if len(self._free) > self._engine.depth:  # of sizes that are not asked for any more
            self._free.clear()
        array = self._engine.pinned(batch.rows)
        if array.shape == shape:
            return array, True
        return np.empty(shape, array.dtype), True

    def _fetch(self) -> None:
        while waiting := self._waiting.get():
            batch, images, future, began = waiting
            try:
                coeffs = future.result()[COEFFS]
            except Exception as error:
                self._failed(batch, error)
                continue
            at = 0
            for bay, start, stop in batch.parts:
                self._bays.coeffs(bay, start, stop)[...] = coeffs[at : at + stop - start]
                at += stop - start
            if images is not None:
                self._free.append(images)
            now = time.perf_counter()
            busy, self._idle_since = now - max(began, self._idle_since), now
            self._say(Inferred(batch.ticket, busy))

    def _failed(self, batch: Batch, error: Exception) -> None:
        text = error.problem if isinstance(error, Face3DError) else f"{type(error).__name__}: {error}"
        self._say(Inferred(batch.ticket, problem=text, memory=is_short_of_memory(error)))

    def _say(self, answer: Inferred) -> None:
        with self._talking:
            self._answer(answer)
