"""CUDA through pycuda: the one file that imports it.

What pycuda 2026.1 does, read in its cuda.hpp, and what follows for this file:

* It keeps a stack of contexts per thread, and a thread that ends with something on it aborts the process ("context
  stack was not empty"). So nothing waits for work with a context pushed, and every push has its pop in a `with`.
* Memory, streams and events remember the context object that was on top when they were made. They can be freed by any
  thread that has this very object pushed; otherwise only by the thread that retained the context, and by others not at
  all, silently. So everything is freed explicitly, under `Device.current`.
* `Context.detach` gives a primary context back but leaves it on CUDA's own stack of the calling thread. So a thread
  made for the purpose does that, and ends.
* A destructor that fails prints to stderr, or, if the context cannot be made current (after a fork), ends the process.
  So in a forked child, and after an error that no CUDA call survives, nothing is freed at all.
* Copies, launches and waits release the interpreter's lock; allocating and freeing do not.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import weakref
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from face3d_trt.engine.gpu import load_kernels_when_used
from face3d_trt.errors import EngineError, InputError, MissingError
from face3d_trt.optional import require
from face3d_trt.runtime.resources import DeviceMemory, Event, PinnedMemory, Resource, Stream

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream, which others in the process use
_BLOCKING_SYNC, _DISABLE_TIMING = 1, 2  # CU_EVENT_*
_BAD_STREAM = (1, 201, 400)  # CUDA_ERROR_INVALID_VALUE, _INVALID_CONTEXT, _INVALID_HANDLE
_devices: weakref.WeakSet[Device] = weakref.WeakSet()


class Device:
    """One GPU, through its primary context, which torch and CUDA's runtime use too.

        device = Device(0)
        with device.current():                # from any thread
            memory = device.alloc(1024)

    What makes, frees, copies or launches needs `current`. Errors of CUDA leave `current` as EngineError, or as
    MissingError where memory is short.

    Args:
        index: In CUDA's order, CUDA_VISIBLE_DEVICES respected.

    Attributes:
        name: "NVIDIA H200".
        compute_capability: "9.0".
        failed: The error after which CUDA answers nothing any more; None while all is well.
        pid: The process it belongs to.
        companion: What else must not be freed where the device must not be.

    Raises:
        MissingError: No pycuda, no driver, or no such GPU.
    """

    def __init__(self, index: int) -> None:
        self._driver = driver = _driver()
        count = driver.Device.count()
        if not 0 <= index < count:
            allowed = f"0 to {count - 1}" if count else "no GPU is visible"
            raise MissingError(f"there is no GPU {index}", allowed=allowed, run="nvidia-smi")
        raw = driver.Device(index)
        major, minor = raw.compute_capability()
        self.index, self.name, self.compute_capability = index, raw.name(), f"{major}.{minor}"
        self.failed: str | None = None
        self.pid = os.getpid()
        self._live: set[Resource] = set()
        self._closing = False
        self._released = False
        self._context = raw.retain_primary_context()
        self._current = _Current(self, self._context)
        self._fence: ctypes.c_void_p | None = None
        self._fencing = threading.Lock()
        self.copy_in, self.copy_out, self.copy_on = _copies(driver)
        self.companion: object = None
        _watch_process()
        _devices.add(self)

    def current(self) -> _Current:
        """Make the context current in this thread: `with device.current():`. May be nested."""
        return self._current

    def alloc(self, nbytes: int) -> DeviceMemory:
        """Memory on the GPU, aligned to 256 bytes.

        Raises:
            MissingError: There is none left.
        """
        return DeviceMemory(self, self._driver.mem_alloc(max(1, nbytes)), nbytes)

    def pinned(self, nbytes: int) -> PinnedMemory:
        """Page-locked memory of the host, which the GPU reads and writes by itself."""
        return PinnedMemory(self, self._driver.pagelocked_empty(max(1, nbytes), np.uint8), nbytes)

    def stream(self) -> Stream:
        """A new stream, which does not wait for the default stream."""
        return Stream(self, self._driver.Stream(_NON_BLOCKING))

    def event(self, *, blocking: bool = False, timed: bool = False) -> Event:
        """A new event.

        Args:
            blocking: Whether the thread that waits for it sleeps. Otherwise it spins, which is faster by some 30 µs.
            timed: Whether it has a time; without, recording it costs less.
        """
        flags = (0 if timed else _DISABLE_TIMING) | (_BLOCKING_SYNC if blocking else 0)
        return Event(self, self._driver.Event(flags))

    def order(self, before: int, after: int) -> None:
        """Let the stream `after` wait for what is on the stream `before` by now.

        Both are handles and may be of another library, of which pycuda knows nothing. Hence ctypes.

        Raises:
            InputError: One of them is no stream of this GPU.
        """
        cuda = _libcuda()
        with self._fencing:
            if self._fence is None:
                fence = ctypes.c_void_p()
                _expect(cuda, cuda.cuEventCreate(ctypes.byref(fence), _DISABLE_TIMING))
                self._fence = fence
            code = cuda.cuEventRecord(self._fence, ctypes.c_void_p(before))
            code = code or cuda.cuStreamWaitEvent(ctypes.c_void_p(after), self._fence, 0)
        _expect(cuda, code)

    def read(self, array: npt.NDArray[Any], address: int, after: int) -> None:
        """Wait for the stream with the handle `after`, then copy to the host and wait for that."""
        cuda = _libcuda()
        _expect(cuda, cuda.cuStreamSynchronize(ctypes.c_void_p(after)))
        self._driver.memcpy_dtoh(array, address)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the GPU, whoever uses the rest."""
        free, total = self._driver.mem_get_info()
        return int(free), int(total)

    def close(self) -> None:
        """Free everything made here that is not lent, and give the context back when the last of it is free."""
        if self._closing:
            return
        self._closing = True
        if self.dead:
            _leave_alone(self)
            return
        with self.current():
            for resource in tuple(self._live):
                if not resource.lent:
                    resource.free()
            if self._fence is not None:
                _libcuda().cuEventDestroy_v2(self._fence)
                self._fence = None
        self._release_if_unused()

    @property
    def dead(self) -> bool:
        """Whether no CUDA call can succeed any more: after some errors, and after a fork."""
        return self.failed is not None or os.getpid() != self.pid

    def forget(self, resource: Resource) -> None:
        """Hear from a resource that it is free."""
        self._live.discard(resource)

    def remember(self, resource: Resource) -> None:
        """Hear from a resource that it exists."""
        self._live.add(resource)

    def release_if_closing(self) -> None:
        """After something lent came back."""
        if self._closing:
            self._release_if_unused()

    def translate(self, error: BaseException) -> None:
        """Raise CUDA's errors as ours."""
        driver = self._driver
        if not isinstance(error, driver.Error):
            return
        if isinstance(error, driver.MemoryError):
            free, total = self.memory()
            raise MissingError(
                f"GPU {self.index} ({self.name}) has too little memory: {error}",
                allowed=f"{free / 1e6:,.0f} of {total / 1e6:,.0f} MB are free",
                run="nvidia-smi    # who uses it; then smaller batches, or Engine(..., memory_limit=BYTES)",
            ) from error
        try:
            driver.Context.synchronize()
        except driver.Error:  # it stays: every later call gives the same
            self.failed = str(error)
        raise EngineError(f"CUDA failed on GPU {self.index} ({self.name}): {error}") from error

    def abandon(self, error: BaseException) -> None:
        """The context cannot be popped: get it off this thread's stack all the same, as the thread would abort."""
        self.failed = self.failed or str(error)
        with suppress(self._driver.Error):
            self._context.detach()
        self._driver.Context.get_current()  # takes what is detached off the stack

    def _release_if_unused(self) -> None:
        if self._live or self._released:
            return
        self._released = True
        _devices.discard(self)
        thread = threading.Thread(target=_release, args=(self._context,), name="face3d-trt release", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is going down, and with it this thread's stack
            _release(self._context)
        else:
            thread.join()

    def _end(self) -> None:
        """At exit: free what is lent too, and take off what an interrupted `with` left on the stack."""
        _leave_alone(self)  # whatever interrupts what follows
        if self.dead:
            return
        while (top := self._driver.Context.get_current()) is not None and top == self._context:
            self._context.pop()
        for resource in tuple(self._live):
            resource.lent = False
        self._closing = False
        self.close()


class _Current:
    """`with device.current():`; one for all threads, as it keeps nothing."""

    __slots__ = ("_device", "_pop", "_push")

    def __init__(self, device: Device, context: Any) -> None:
        self._device, self._push, self._pop = weakref.proxy(device), context.push, context.pop

    def __enter__(self) -> None:
        try:
            self._push()
        except Exception as error:  # an error of earlier work may show here
            self._device.translate(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._device.translate(error)
        finally:
            try:
                self._pop()
            except Exception as last:
                self._device.abandon(last)


def _copies(driver: Any) -> tuple[Any, Any, Any]:
    """Asynchronous copies: to the GPU, from it, on it. Bound once, as they are in every call of an engine."""
    to_gpu, to_host, on_gpu = driver.memcpy_htod_async, driver.memcpy_dtoh_async, driver.memcpy_dtod_async

    def copy_in(address: int, array: npt.NDArray[Any], stream: Stream) -> None:
        to_gpu(address, array, stream.queue)

    def copy_out(array: npt.NDArray[Any], address: int, stream: Stream) -> None:
        to_host(array, address, stream.queue)

    def copy_on(target: int, source: int, nbytes: int, stream: Stream) -> None:
        on_gpu(target, source, nbytes, stream.queue)

    return copy_in, copy_out, copy_on


def _driver() -> Any:
    load_kernels_when_used()
    driver = require("pycuda.driver", "gpu", "running an engine")
    try:
        driver.init()
    except driver.Error as error:
        allowed = "an NVIDIA GPU with its driver"
        raise MissingError(f"CUDA does not start: {error}", allowed=allowed, run="nvidia-smi") from error
    return driver


@functools.cache
def _libcuda() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _expect(cuda: ctypes.CDLL, code: int) -> None:
    if not code:
        return
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(text))
    name = (text.value or b"unknown error").decode()
    if code in _BAD_STREAM:
        raise InputError(f"CUDA refuses the stream: {name}", allowed="a stream of the engine's GPU that exists")
    raise EngineError(f"CUDA failed on a stream of the caller: {name}")


def _release(context: Any) -> None:
    context.push()
    context.detach()


@functools.cache
def _watch_process() -> None:
    """From the first device on: leave CUDA alone in forked children, free everything before the interpreter goes."""
    os.register_at_fork(after_in_child=_leave_all_alone)
    atexit.register(_end_all)


def _leave_all_alone() -> None:
    for device in tuple(_devices):
        _leave_alone(device)


def _end_all() -> None:
    for device in tuple(_devices):
        device._end()


def _leave_alone(device: Device) -> None:
    """Let no destructor of pycuda run: what nobody may free must not be freed by reference count either."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(device))
