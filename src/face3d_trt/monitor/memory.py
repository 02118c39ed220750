"""GPU memory of this process, asked of NVIDIA's driver and its management library by ctypes: no package is needed."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any

from face3d_trt.engine.gpu import load_kernels_when_used
from face3d_trt.errors import MissingError

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, cuda.h
_UNKNOWN = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
_MOST = 256  # processes


class _Memory(ctypes.Structure):
    """nvmlMemory_t, bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t as of version 2 of its call."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


class GpuMemory:
    """The memory of one GPU, and the share of this process. Make it before the process has a CUDA context.

    In a container NVML may name processes by the host's numbers. Then the one process that was not there before is
    taken for this one, for good: ask for the first time while this process has a context. Where several came, or NVML
    gives no figure, only the growth of the whole GPU is known.

    Args:
        index: Of the GPU, in CUDA's order.

    Raises:
        MissingError: There is no such GPU, or NVML does not answer.
    """

    def __init__(self, index: int = 0) -> None:
        self._nvml = _library("libnvidia-ml.so.1")
        _check(self._nvml.nvmlInit_v2(), "nvmlInit")
        self._device = ctypes.c_void_p()
        address = bus_address(index)
        _check(self._nvml.nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(self._device)), "the GPU's handle")
        self._before = self.used()
        self._others = set(self.processes() or ())
        self._own: int | None = None

    def used(self) -> int:
        """Bytes in use on the whole GPU."""
        memory = _Memory()
        _check(self._nvml.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory)), "its memory")
        return int(memory.used)

    def process(self) -> int | None:
        """Bytes that this process holds, 0 once it was known and holds nothing; None where NVML does not tell."""
        if (processes := self.processes()) is None:
            return None
        if self._own is None:
            new = [pid for pid in processes if pid not in self._others]
            self._own = os.getpid() if os.getpid() in new else new[0] if len(new) == 1 else None
        return None if self._own is None else processes.get(self._own, 0)

    def sample(self) -> tuple[int | None, int]:
        """Bytes of this process, as `process` has it, and of the whole GPU."""
        return self.process(), self.used()

    def figures(self) -> dict[str, Any]:
        """`{"bytes", "by", "gpu_growth"}`: this process's memory, how it was found, and what the whole GPU grew by."""
        growth, process = self.used() - self._before, self.process()
        if process is None:
            return {"bytes": growth, "by": "growth of the GPU's memory", "gpu_growth": growth}
        return {"bytes": process, "by": "NVML, this process", "gpu_growth": growth}

    def processes(self) -> dict[int, int] | None:
        """Bytes by process number, of those that compute on the GPU; None where NVML does not tell."""
        count, listed = ctypes.c_uint(_MOST), (_Process * _MOST)()
        if self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._device, ctypes.byref(count), listed):
            return None
        return {each.pid: int(each.used) for each in listed[: count.value] if each.used != _UNKNOWN}


_SEEN: dict[tuple[int, int], GpuMemory] = {}  # by process and GPU: what was there when it was first asked for


def process_memory(device_index: int, pid: int | None = None) -> int | None:
    """Bytes of GPU memory that a process holds, its CUDA context included; None where NVML does not tell.

    A process that NVML lists under its own number is found at any time. In a container, where it may not, this process
    is the one that came since the first call: make that before the first use of CUDA.

    Args:
        device_index: In CUDA's order.
        pid: Of the process; None: this one.
    """
    key = (os.getpid(), device_index)
    try:
        if key not in _SEEN:
            _SEEN[key] = GpuMemory(device_index)
        memory = _SEEN[key]
        processes = memory.processes() or {}
        number = os.getpid() if pid is None else pid
        if number in processes:
            return processes[number]
        return memory.process() if number == os.getpid() else None
    except MissingError:
        return None


def resident() -> int:
    """Bytes of host memory that this process holds (VmRSS)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def held_context(index: int = 0) -> Iterator[None]:
    """Keep a GPU's primary context alive, as any other user of CUDA in a service does; it is not made current.

    Raises:
        MissingError: There is no such GPU, or its driver gives no context.
    """
    cuda, device = _cuda_device(index)
    context = ctypes.c_void_p()
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "a context")
    try:
        yield
    finally:
        _check(cuda.cuDevicePrimaryCtxRelease_v2(device), "the context's release")


def bus_address(index: int) -> bytes:
    """PCI address of a GPU in CUDA's order, by which NVML finds the same one; makes no context.

    Raises:
        MissingError: There is no driver, or it shows no such GPU to this process.
    """
    cuda, device = _cuda_device(index)
    address = ctypes.create_string_buffer(32)
    _check(cuda.cuDeviceGetPCIBusId(address, len(address), device), "its address on the bus")
    return address.value


def gpu_count() -> int:
    """How many GPUs CUDA shows to this process, at least one; makes no context.

    Raises:
        MissingError: There is no driver, or it shows none.
    """
    cuda, count = _cuda(), ctypes.c_int()
    _check(cuda.cuDeviceGetCount(ctypes.byref(count)), "the number of GPUs")
    return count.value


def _cuda_device(index: int) -> tuple[ctypes.CDLL, ctypes.c_int]:
    cuda, device = _cuda(), ctypes.c_int()
    _check(cuda.cuDeviceGet(ctypes.byref(device), index), f"GPU {index}")
    return cuda, device


def _cuda() -> ctypes.CDLL:
    cuda = _library("libcuda.so.1")
    load_kernels_when_used()
    if (status := cuda.cuInit(0)) == _NO_DEVICE:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "" if hidden is None else f": CUDA_VISIBLE_DEVICES is {hidden!r}"
        raise MissingError(f"CUDA shows no GPU to this process{why}", run="face3d-trt doctor")
    _check(status, "cuInit")
    return cuda


def _library(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise MissingError(f"NVIDIA's driver is not there: {error}", run="face3d-trt doctor") from error


def _check(status: int, what: str) -> None:
    if status:
        raise MissingError(f"NVIDIA's driver does not give {what}: status {status}", run="face3d-trt doctor")
