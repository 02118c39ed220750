"""A plan on an NVIDIA GPU, through pycuda: what services import."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from face3d_trt.errors import EngineError, Face3DError, InputError
from face3d_trt.runtime.dlpack import stream_handle
from face3d_trt.runtime.fitting import Budget
from face3d_trt.runtime.flights import Batch, Completer, Flight, fly, launch, run_here
from face3d_trt.runtime.graphs import find_graphs
from face3d_trt.runtime.inputs import HostImages, Spec
from face3d_trt.runtime.interface import FaceEngine, HostArray, HostResults
from face3d_trt.runtime.lane import SMALL_ROWS, Lane
from face3d_trt.runtime.loading import Loaded, load
from face3d_trt.runtime.loans import Loans
from face3d_trt.runtime.ondevice import OnDevice
from face3d_trt.runtime.options import check_batch, check_batches, check_engine, check_index
from face3d_trt.runtime.pieces import Piece
from face3d_trt.runtime.pool import PATIENCE_S, Lease, SlotPool
from face3d_trt.runtime.shelf import PLAIN_RUNS

if TYPE_CHECKING:
    from face3d_trt.runtime.graphs import GraphMaker
    from face3d_trt.runtime.slots import Slot

_CHOICES = 64  # selections of outputs that are remembered
RING = 3  # slots of a lane: one is uploaded, one runs, one is downloaded
_GLANCE_S = 0.001  # between two looks of a thread that something else may need as well
_STUCK_S = 60.0  # that a call may take on the host, with the GPU idle, until close() goes on without it
_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_stuck: list[Engine] = []  # the CUDA driver frees what they have
_log = logging.getLogger("face3d_trt")


class Engine(FaceEngine):
    """A plan that TensorRT runs.

        with Engine("engines/face3d_resnet50.int8.plan") as engine:
            engine.warm_up((1, 2, 4))
            coeffs = engine(images)["coeffs"]

    See FaceEngine for what calls take and give. Beyond that, arrays on the same GPU (torch, CuPy, Numba, pycuda: DLPack
    or `__cuda_array_interface__`) are read where they lie, ordered on the GPU after the stream that they or `stream=`
    name, and `to="device"` leaves results there; `out=` then takes arrays on the GPU too. Memory given as `out` or
    returned by to="device" must not be reused while the stream it is ordered on has not come that far.

    Batches of up to 16 rows run as one CUDA graph each once a size has come a few times (needs cuda-python), larger
    ones with uploads, runs and downloads overlapped on three streams. A graph is valid for one shape and one set of
    buffers; shelf.py says why it stays so.

    Args:
        plan: With its manifest beside it.
        device: Index of the GPU.
        contexts: Execution contexts that run at the same time. More than one needs a plan whose profiles can be shared;
            it helps where single runs do not fill the GPU.
        graphs: Whether to use CUDA graphs.
        memory_limit: Bytes on the GPU that plan, scratch and buffers may take; None: what they need. CUDA's own context
            (some hundred MB, shared with torch) is not counted.
        check: Whether float pictures on the host are searched for NaN and values outside 0..1.

    Attributes:
        graphs: Whether CUDA graphs are used.
        device: Index of the GPU.

    Raises:
        PlanError: The plan is damaged, swapped, or without its manifest.
        MissingError: No pycuda, no TensorRT, no such GPU, or too little memory.
        EngineError: TensorRT refuses a context.
    """

    def __init__(
        self,
        plan: str | os.PathLike[str],
        device: int = 0,
        contexts: int = 1,
        graphs: bool = True,
        memory_limit: int | None = None,
        check: bool = True,
    ) -> None:
        contexts, memory_limit = check_engine(contexts, memory_limit)
        loaded = load(Path(plan), check_index("device", device))
        self._start(loaded, find_graphs() if graphs else None, contexts, memory_limit, check)

    def _start(
        self, loaded: Loaded, graphs: GraphMaker | None, contexts: int, memory_limit: int | None, check: bool
    ) -> None:
        """Make everything that runs; GPU and plan are this engine's from here on."""
        super().__init__()
        self._gpu, self._plan = gpu, plan = loaded.gpu, loaded.plan
        gpu.companion = plan
        self._lanes: tuple[Lane, ...] = ()
        self._completers: dict[Lane, Completer] = {}
        self._closing = threading.Lock()
        self._loans = Loans(gpu)
        try:
            self._spec = Spec(plan.inputs, plan.outputs, plan.profiles, check=check, device=gpu.index)
            self._names, self._chosen = self._spec.choose(None), dict[tuple[str, ...], tuple[str, ...]]()
            ring = Budget(memory_limit, loaded.nbytes).fit(self._spec, plan.scratch_bytes(), contexts, RING)
            with gpu.current():
                self._lanes = tuple(Lane(gpu, plan, self._spec, graphs, ring) for _ in range(contexts))
                self._on_device = OnDevice(gpu, self._spec, self._loans, gpu.stream())
                if contexts > 1:
                    self._prepare_all()
        except BaseException:
            self._closed = True
            self._free()
            raise
        self._pool = SlotPool([lane.slots for lane in self._lanes])
        self._completers = {lane: Completer(f"face3d-trt results {index}") for index, lane in enumerate(self._lanes)}
        self.inputs, self.outputs, self.profiles = plan.inputs, plan.outputs, plan.profiles
        self.manifest, self.model, self.backend = loaded.manifest, loaded.model, loaded.backend
        self.depth, self.device, self.graphs = len(self._pool.slots), gpu.index, graphs is not None
        _close_at_exit()
        _open_engines.add(self)

    def __call__(
        self,
        images: Any,
        *,
        outputs: Sequence[str] | None = None,
        out: Mapping[str, Any] | None = None,
        to: Literal["host", "device"] = "host",
        stream: Any = None,
    ) -> dict[str, Any]:
        """Run a batch in the caller's thread; see FaceEngine."""
        if self._closed or self._gpu.failed is not None or os.getpid() != self._pid:
            self._check_usable()
        names = self._names if outputs is None else self._choose(outputs)
        if to == "device":
            return self._left_there(images, names, out or {}, stream)
        if to != "host":
            raise InputError(f"to={to!r}", allowed='"host", "device"')
        batch = self._batch(images, names, out, stream)
        run_here(batch, self._pool, self._take)
        return batch.results

    def submit(
        self, images: Any, *, outputs: Sequence[str] | None = None, out: Mapping[str, HostArray] | None = None
    ) -> Future[HostResults]:
        """Run a batch in the background; see FaceEngine."""
        self._check_usable()
        batch = self._batch(images, self._choose(outputs), out, None)
        future: Future[HostResults] = Future()
        future.set_running_or_notify_cancel()
        batch.future, batch.left = future, len(batch.pieces)
        flight: Flight | None = None
        try:
            for done, piece in enumerate(batch.pieces):
                flight = Flight(batch, piece)
                try:
                    flight.lease = self._take()
                    slot = flight.lease.slot
                    completer = self._completers[slot.lane]
                    completer.start()
                except Face3DError as error:
                    if not done:
                        raise
                    batch.landed(error, len(batch.pieces) - done)
                    break
                try:
                    flight.place = launch(slot, batch, piece, sleeping=True)
                except Face3DError as error:
                    flight = None
                    batch.landed(error, len(batch.pieces) - done)
                    break
                completer.put(flight)
        finally:
            flight = None
        return future

    def pinned(self, batch: int) -> HostArray:
        """A page-locked array; see FaceEngine. Batches of up to 16 rows are copied all the same, which takes 10 µs."""
        self._check_usable()
        batch = check_batch("pinned", batch)
        with self._gpu.current():
            return self._loans.on_host(self._spec.shape(batch), self._spec.dtype)

    def warm_up(self, batches: int | Iterable[int] = (1,)) -> None:
        """Make buffers, contexts and graphs for these batch sizes, in every slot; see FaceEngine."""
        self._check_usable()
        sizes = sorted(check_batches(batches), reverse=True)  # buffers that grow take graphs of smaller sizes away
        checked = [self._spec.check(np.zeros(self._spec.shape(rows), self._spec.dtype)) for rows in sizes]
        runs = dict.fromkeys((piece.rows, piece.profile) for each in checked for piece in each.pieces)
        for slot in self._pool.slots:  # one at a time: two threads that warm up cannot wait for each other
            heir: Lease | None = None
            lease: Lease | None = None
            try:
                while heir is None and (heir := self._pool.reserve(slot)) is None:
                    self._glance()
                while lease is None and (lease := self._pool.take_reserved(slot)) is None:
                    self._glance()
                for rows, profile in sorted(runs, reverse=True):
                    self._warm(lease.slot, rows, profile)
            finally:
                heir = lease = None

    def close(self) -> None:
        """Finish what is in flight, then free everything. A second call does nothing.

        Results on the GPU and page-locked arrays that the caller still holds stay valid.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if os.getpid() == self._pid:
            self._pool.shut()
            if not self._rest():
                _log.warning("%s: a call does not end, so its memory stays until the process ends", self.backend)
                _stuck.append(self)
                return
            for completer in self._completers.values():
                completer.stop()
        _open_engines.discard(self)
        self._free()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):  # True: it was never opened
            self.close()

    def _check_usable(self) -> None:
        super()._check_usable()
        if self._gpu.failed is not None:
            raise EngineError(
                f"this engine failed before: {self._gpu.failed}",
                allowed="nothing: CUDA does not recover from this error within a process",
                run="restart the process",
            )

    def _batch(self, images: Any, names: tuple[str, ...], out: Mapping[str, Any] | None, stream: Any) -> Batch:
        """A batch whose results go to the host."""
        if type(images) is np.ndarray and stream is None:
            checked = self._spec.check(images)
            caller = None
        else:
            caller = stream_handle(stream)
            checked = self._on_device.check(images, caller)
        whole = out is None and len(checked.pieces) == 1  # new arrays are made as the results are there
        results = {} if whole else self._spec.arrays(names, checked.batch, out)
        if isinstance(checked, HostImages):
            array = checked.array
            return Batch(checked.pieces, array.shape, array, results, names, self._loans.holds(array))
        return self._on_device.to_host(checked, results, names, caller)

    def _left_there(self, images: Any, names: tuple[str, ...], out: Mapping[str, Any], stream: Any) -> dict[str, Any]:
        """Results on the GPU, which may not be there yet."""
        caller = stream_handle(stream)
        checked = self._on_device.check(images, caller)
        direct = isinstance(checked, HostImages) and self._loans.holds(checked.array)
        batch, results = self._on_device.to_device(checked, names, out, caller, direct)
        run_here(batch, self._pool, self._take)
        return results

    def _choose(self, outputs: Sequence[str] | None) -> tuple[str, ...]:
        """Names of outputs, checked; remembered, as most callers ask for the same ones for ever."""
        if outputs is None or isinstance(outputs, str):
            return self._spec.choose(outputs)
        try:
            key = tuple(outputs)
            found = self._chosen.get(key)
        except TypeError:  # no names at all
            return self._spec.choose(outputs)
        if found is None:
            found = self._spec.choose(key)
            if len(self._chosen) < _CHOICES:
                self._chosen[key] = found
        return found

    def _take(self) -> Lease:
        hinted = False
        while (lease := self._pool.try_take(hinted=hinted)) is None:
            hinted = False
            if not self._help_out():
                here = any(each.here for each in self._completers.values())  # others may yet give it something to do
                hinted = self._pool.wait(_GLANCE_S if here else PATIENCE_S)
        return lease

    def _help_out(self) -> bool:
        """In a callback of a future: fetch a result, as the thread that does it is busy with the callback."""
        return any(completer.help_out() for completer in self._completers.values())

    def _glance(self) -> None:
        """Let something happen before the next look; nothing that may wait for what the caller holds."""
        if not any(completer.help_out(quietly=True) for completer in self._completers.values()):
            time.sleep(_GLANCE_S)

    def _await(self, future: Future[HostResults]) -> None:
        while not future.done() and self._help_out():
            pass
        super()._await(future)

    def _rest(self) -> bool:
        """Wait until nothing is in flight and no call uses a slot; False: one does for a minute, and the GPU idles."""
        idle_since = None
        while not self._pool.resting:
            if self._help_out():
                continue
            if idle_since is None or time.monotonic() - idle_since > _STUCK_S:
                for lane in self._lanes:
                    lane.settle()
                if idle_since is not None and not self._pool.resting:
                    return False
                idle_since = time.monotonic()
            time.sleep(_GLANCE_S)
        return True

    def _warm(self, slot: Slot, rows: int, profile: int) -> None:
        images = np.zeros(self._spec.shape(rows), self._spec.dtype)
        batch = Batch((Piece(0, rows, profile),), images.shape, images, {}, self._names)
        for _ in range(PLAIN_RUNS + 2 if rows <= SMALL_ROWS else 1):
            batch.results = {}
            fly(slot, batch, batch.pieces[0])

    def _free(self) -> None:
        gpu = self._gpu
        if not gpu.dead:
            with suppress(Face3DError), gpu.current():  # an error of earlier work that shows only now
                for lane in self._lanes:
                    for slot in lane.slots:
                        slot.settle()
                    lane.close()
                self._loans.close()
                self._plan.close()
                gpu.companion = None
        gpu.close()

    def _prepare_all(self) -> None:
        """A context of every lane, now: whether the plan allows several should not show in the first busy hour."""
        try:
            for lane in self._lanes:
                lane.prepare(0)
        except EngineError as error:
            raise EngineError(
                f"contexts={len(self._lanes)}: {error.problem}",
                allowed="contexts=1, or a plan whose profiles can be shared by contexts",
                run="face3d-trt build    # builds such plans where TensorRT can",
            ) from error


@functools.cache
def _close_at_exit() -> None:
    atexit.register(_close_all)


def _close_all() -> None:
    for engine in tuple(_open_engines):
        engine.close()
