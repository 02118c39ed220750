"""CUDA and a plan without a GPU, for what cannot exist here.

The streams are real threads that work their queues at their own, random pace, memory on the "GPU" is poisoned when it
is freed and refuses access from then on, contexts share scratch memory and keep their shape "on the GPU", as TensorRT's
do. So a wait that is missing, a buffer that is used too early or freed too soon, or a graph that outlives what it
depends on, gives wrong rows or an error.
"""

from __future__ import annotations

import atexit
import bisect
import itertools
import os
import random
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import numpy as np
from tests.runtime.network import INPUTS, LARGEST, MATRICES, OUTPUTS, PROFILES

from face3d_trt.errors import EngineError, MissingError

POISON = 0xDD
LEGACY = 1
PATIENCE = 30  # seconds until a test gives up on a wait


class FakeCudaError(Exception):
    """What pycuda would raise."""


class Memory:
    """Blocks with their real addresses, as the host has them."""

    def __init__(self) -> None:
        self.blocks: dict[int, np.ndarray] = {}
        self._starts: list[int] = []
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> int:
        raw = np.full(nbytes + 512, POISON, np.uint8)
        offset = -raw.ctypes.data % 256
        block = raw[offset : offset + max(1, nbytes)]
        with self._lock:
            self.blocks[block.ctypes.data] = block
            bisect.insort(self._starts, block.ctypes.data)
        return block.ctypes.data

    def remove(self, address: int) -> None:
        with self._lock:
            block = self.blocks.pop(address)
            self._starts.remove(address)
        block[:] = POISON

    def view(self, address: int, nbytes: int) -> np.ndarray:
        with self._lock:
            index = bisect.bisect_right(self._starts, address) - 1
            start = self._starts[index] if index >= 0 else 0
            block = self.blocks.get(start)
        if block is None or address + nbytes > start + len(block):
            raise FakeCudaError("an illegal memory access was encountered")
        return block[address - start : address - start + nbytes]


class FakeDevice:
    """See runtime/cuda.Device.

    Args:
        index: Of the GPU.
        delay: Seconds that work on a stream takes at most; None: none, and done at once, by the thread that asks.
        total: Bytes of memory.
    """

    name, compute_capability = "a double", "0.0"

    def __init__(self, index: int = 0, delay: float | None = 0.0005, total: int = 1 << 30) -> None:
        self.index, self.delay, self.total = index, delay, total
        self.failed: str | None = None
        self.pid = os.getpid()
        self.companion: object = None
        self.memory_blocks = Memory()
        self.pinned_bytes = 0
        self.streams: dict[int, FakeStream] = {}
        self.handles = itertools.count(16)
        self.live: set[object] = set()
        self.released = False
        self._closing = False
        self._depth = threading.local()
        self._random = random.Random(index)
        self.streams[LEGACY] = self.streams[0] = FakeStream(self, LEGACY)
        self.live.discard(self.streams[LEGACY])
        atexit.register(self.end)

    @property
    def depth(self) -> int:
        return getattr(self._depth, "value", 0)

    def current(self) -> FakeDevice:
        return self

    def __enter__(self) -> None:
        self._depth.value = self.depth + 1

    def __exit__(self, kind, error, trace) -> None:
        self._depth.value -= 1
        if isinstance(error, FakeCudaError):
            raise EngineError(f"CUDA failed on GPU {self.index}: {error}") from error

    @property
    def dead(self) -> bool:
        return self.failed is not None or os.getpid() != self.pid

    def need_current(self) -> None:
        if not self.depth:
            raise FakeCudaError("invalid device context")
        if self.failed:
            raise FakeCudaError(self.failed)

    def pause(self) -> None:
        if self.delay:
            time.sleep(self._random.random() * self.delay)

    def alloc(self, nbytes: int) -> FakeMemory:
        self.need_current()
        if nbytes > self.memory()[0]:
            raise MissingError(f"GPU {self.index} has too little memory")
        return FakeMemory(self, nbytes)

    def pinned(self, nbytes: int) -> FakePinned:
        self.need_current()
        return FakePinned(self, nbytes)

    def stream(self) -> FakeStream:
        self.need_current()
        stream = FakeStream(self, next(self.handles))
        self.streams[stream.handle] = stream
        return stream

    def event(self, *, blocking: bool = False, timed: bool = False) -> FakeEvent:
        self.need_current()
        return FakeEvent(self)

    def order(self, before: int, after: int) -> None:
        self.need_current()
        event = FakeEvent(self)
        event.record(self.streams[before])
        self.streams[after].wait(event)
        self.live.discard(event)

    def read(self, array: np.ndarray, address: int, after: int) -> None:
        self.need_current()
        self.streams[after].synchronize()
        array.reshape(-1).view(np.uint8)[:] = self.memory_blocks.view(address, array.nbytes)

    def copy_in(self, address: int, array: np.ndarray, stream: FakeStream) -> None:
        self.need_current()
        assert array.flags.c_contiguous

        def work() -> None:
            self.memory_blocks.view(address, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

        stream.put(work)

    def copy_out(self, array: np.ndarray, address: int, stream: FakeStream) -> None:
        self.need_current()
        assert array.flags.c_contiguous

        def work() -> None:
            array.reshape(-1).view(np.uint8)[:] = self.memory_blocks.view(address, array.nbytes)

        stream.put(work)

    def copy_on(self, target: int, source: int, nbytes: int, stream: FakeStream) -> None:
        self.need_current()

        def work() -> None:
            self.memory_blocks.view(target, nbytes)[:] = self.memory_blocks.view(source, nbytes)

        stream.put(work)

    def memory(self) -> tuple[int, int]:
        used = sum(len(block) for block in tuple(self.memory_blocks.blocks.values()))
        return self.total - used, self.total

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self.dead:
            return
        for each in tuple(self.live):
            if not each.lent:
                each.free()
        self.release_if_closing()

    def release_if_closing(self) -> None:
        if self._closing and not self.live:
            self.released = True
            self.streams[LEGACY].stop()
            atexit.unregister(self.end)

    def end(self) -> None:
        for each in tuple(self.live):
            each.lent = False
        self._closing = False
        self.close()


class FakeResource:
    def __init__(self, device: FakeDevice) -> None:
        self.device, self.lent, self.freed = device, False, False
        device.live.add(self)

    def free(self) -> None:
        if not self.freed:
            self.freed = True
            self.device.live.discard(self)
            self.release()

    def release(self) -> None:
        pass


class FakeMemory(FakeResource):
    def __init__(self, device: FakeDevice, nbytes: int) -> None:
        self.nbytes, self.address = nbytes, device.memory_blocks.add(nbytes)
        super().__init__(device)

    def release(self) -> None:
        for stream in set(self.device.streams.values()):  # as cuMemFree does
            stream.synchronize()
        self.device.memory_blocks.remove(self.address)


class FakePinned(FakeResource):
    def __init__(self, device: FakeDevice, nbytes: int) -> None:
        self.array = np.full(max(1, nbytes), POISON, np.uint8)[:nbytes]
        self.nbytes, self.address = nbytes, self.array.ctypes.data
        device.pinned_bytes += nbytes
        super().__init__(device)

    def release(self) -> None:
        self.array[:] = POISON
        self.device.pinned_bytes -= self.nbytes


class FakeStream(FakeResource):
    def __init__(self, device: FakeDevice, handle: int) -> None:
        super().__init__(device)
        self.handle = handle
        self.capturing: list[Callable[[], None]] | None = None
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"stream {handle}", daemon=True)
        if device.delay is not None:
            self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        if self.capturing is not None:
            self.capturing.append(work)
        elif self.device.delay is None:
            work()
        else:
            self._queue.put(work)

    def synchronize(self) -> None:
        if self.capturing is not None:
            raise FakeCudaError("operation not permitted when stream is capturing")
        event = FakeEvent(self.device)
        event.record(self)
        event.synchronize()
        self.device.live.discard(event)

    def wait(self, event: FakeEvent) -> None:
        ticket = event.ticket
        self.put(lambda: wait_for(ticket))

    def stop(self) -> None:
        if self.device.delay is not None:
            self._queue.put(None)
            self._thread.join(PATIENCE)

    def release(self) -> None:
        self.stop()
        self.device.streams.pop(self.handle)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            self.device.pause()
            try:
                work()
            except FakeCudaError as error:
                self.device.failed = str(error)


class FakeEvent(FakeResource):
    def __init__(self, device: FakeDevice) -> None:
        self.ticket = threading.Event()
        self.ticket.set()
        self.reached: list[float] = []  # when the stream came to it
        super().__init__(device)

    def record(self, stream: FakeStream) -> None:
        assert stream.capturing is None
        ticket, reached = threading.Event(), []

        def reach() -> None:
            reached.append(time.perf_counter())
            ticket.set()

        stream.put(reach)
        self.reached = reached
        self.ticket = ticket  # last: an interrupted record has recorded nothing

    def synchronize(self) -> None:
        wait_for(self.ticket)
        if self.device.failed:
            raise FakeCudaError(self.device.failed)

    def ms_since(self, earlier: FakeEvent) -> float:
        return (self.reached[0] - earlier.reached[0]) * 1000

    def query(self) -> bool:
        return self.ticket.is_set()


def wait_for(ticket: threading.Event) -> None:
    if not ticket.wait(PATIENCE):
        raise FakeCudaError("a wait without end")


class FakeGraphs:
    """See runtime/graphs.GraphMaker.

    Args:
        device: Whose streams.
        refuse: Whether every capture is refused.
    """

    def __init__(self, device: FakeDevice, *, refuse: bool = False) -> None:
        self._device, self._refuse = device, refuse
        self.captured = self.launched = self.alive = 0

    def capture(self, stream: int, work: Callable[[], None]) -> FakeGraph:
        queue = self._device.streams[stream]
        queue.capturing = []
        try:
            work()
            if self._refuse:
                raise EngineError("CUDA refuses the capture of a graph")
            self.captured += 1
            self.alive += 1
            return FakeGraph(self, queue, queue.capturing)
        finally:
            queue.capturing = None


class FakeGraph:
    def __init__(self, maker: FakeGraphs, stream: FakeStream, work: list[Callable[[], None]]) -> None:
        self._maker, self._stream, self._work = maker, stream, work

    def launch(self) -> None:
        self._maker.launched += 1
        for each in self._work:
            self._stream.put(each)

    def close(self) -> None:
        self._maker.alive -= 1
        self._work = []


class FakePlan:
    """See engine/loaded.LoadedPlan; computes what network.py says.

    Args:
        device: Where.
        sharing: Whether several contexts may have one profile.
        break_after: Runs after which the GPU fails for good; None: never.
    """

    inputs, outputs, profiles = INPUTS, OUTPUTS, PROFILES

    def __init__(self, device: FakeDevice, *, sharing: bool = True, break_after: int | None = None) -> None:
        self.device, self.sharing, self.break_after = device, sharing, break_after
        self.contexts: set[FakeContext] = set()
        self.closed = False
        self.runs = itertools.count(1)
        self.made = 0

    def scratch_bytes(self) -> int:
        return LARGEST * 3 * 8

    def context(self, profile: int, *, stream: int, scratch: int | None = None) -> FakeContext:
        self.device.need_current()
        if not self.sharing and any(each.profile == profile for each in self.contexts):
            raise EngineError(f"TensorRT did not select profile {profile}")
        self.made += 1
        made = FakeContext(self, profile, scratch)
        self.contexts.add(made)
        return made

    def close(self) -> None:
        self.device.need_current()
        assert not self.contexts, "contexts go before the engine"
        self.closed = True


class FakeContext:
    def __init__(self, plan: FakePlan, profile: int, scratch: int | None) -> None:
        assert scratch is not None
        self._plan, self.profile, self._scratch = plan, profile, scratch
        self._shape: tuple[int, ...] | None = None
        self._on_gpu: tuple[int, ...] | None = None  # what enqueued work has brought there
        self._table: tuple[int, ...] = ()  # what is there now
        self._addresses: dict[str, int] = {}
        self._busy = threading.Lock()

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        limits = PROFILES[self.profile]
        sizes = zip(limits.min, shape, limits.max, strict=True)
        if name != "input" or not all(low <= size <= high for low, size, high in sizes):
            raise EngineError(f"TensorRT refused the shape {shape}")
        self._shape = shape

    def shape(self, name: str) -> tuple[int, ...]:
        assert self._shape is not None
        return (self._shape[0], *next(each.shape[1:] for each in OUTPUTS if each.name == name))

    def set_address(self, name: str, address: int) -> None:
        assert address % 256 == 0
        self._addresses[name] = address

    def enqueue(self, stream: int) -> None:
        plan = self._plan
        plan.device.need_current()
        assert not self._busy.locked(), "two threads in one context"
        with self._busy:  # Ctrl-C does not come between, as it might with acquire()
            self._put(plan.device.streams[stream])

    def _put(self, queue: FakeStream) -> None:
        shape, addresses = self._shape, dict(self._addresses)
        assert shape is not None
        assert set(addresses) == {"input", "coeffs", "vertex"}
        if shape != self._on_gpu:
            if queue.capturing is not None:
                raise EngineError("the first run of a shape cannot be captured")
            self._on_gpu = shape
            queue.put(lambda: setattr(self, "_table", shape))
        queue.put(lambda: self._means(addresses["input"]))
        for name in ("coeffs", "vertex"):
            queue.put(lambda name=name: self._product(name, addresses[name]))

    def _means(self, address: int) -> None:
        number = next(self._plan.runs)
        if self._plan.break_after is not None and number > self._plan.break_after:
            raise FakeCudaError("an illegal memory access was encountered")
        rows = self._table[0]
        count = int(np.prod(self._table))
        images = self._plan.device.memory_blocks.view(address, count * 4).view(np.float32).reshape(self._table)
        means = images.mean(axis=(2, 3), dtype=np.float64)
        self._plan.device.memory_blocks.view(self._scratch, rows * 24).view(np.float64)[:] = means.reshape(-1)

    def _product(self, name: str, address: int) -> None:
        rows = self._table[0]
        means = self._plan.device.memory_blocks.view(self._scratch, rows * 24).view(np.float64).reshape(rows, 3)
        result = (means @ MATRICES[name]).astype(np.float32)
        self._plan.device.memory_blocks.view(address, result.nbytes).view(np.float32)[:] = result.reshape(-1)

    def close(self) -> None:
        self._plan.contexts.discard(self)
