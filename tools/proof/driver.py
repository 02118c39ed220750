"""What NVIDIA's driver and its management library say, asked by ctypes: no package, in either interpreter."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any

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
    """

    def __init__(self, index: int = 0) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        _check(self._nvml.nvmlInit_v2(), "nvmlInit")
        self._device = ctypes.c_void_p()
        address = _bus_address(index)
        _check(self._nvml.nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(self._device)), "the GPU's handle")
        self._before = self.used()
        self._others = set(self._processes() or ())
        self._own: int | None = None

    def used(self) -> int:
        """Bytes in use on the whole GPU."""
        memory = _Memory()
        _check(self._nvml.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory)), "its memory")
        return int(memory.used)

    def process(self) -> int | None:
        """Bytes that this process holds, 0 once it was known and holds nothing; None where NVML does not tell."""
        if (processes := self._processes()) is None:
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

    def _processes(self) -> dict[int, int] | None:
        count, listed = ctypes.c_uint(_MOST), (_Process * _MOST)()
        if self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._device, ctypes.byref(count), listed):
            return None
        return {each.pid: int(each.used) for each in listed[: count.value] if each.used != _UNKNOWN}


def resident() -> int:
    """Bytes of host memory that this process holds (VmRSS)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def held_context(index: int = 0) -> Iterator[None]:
    """Keep a GPU's primary context alive, as any other user of CUDA in a service does; it is not made current."""
    cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    _check(cuda.cuInit(0), "cuInit")
    _check(cuda.cuDeviceGet(ctypes.byref(device), index), f"GPU {index}")
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "a context")
    try:
        yield
    finally:
        _check(cuda.cuDevicePrimaryCtxRelease_v2(device), "the context's release")


def _bus_address(index: int) -> bytes:
    """Of a GPU in CUDA's order; makes no context."""
    cuda, device, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.create_string_buffer(32)
    _check(cuda.cuInit(0), "cuInit")
    _check(cuda.cuDeviceGet(ctypes.byref(device), index), f"GPU {index}")
    _check(cuda.cuDeviceGetPCIBusId(address, len(address), device), "its address on the bus")
    return address.value


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"the driver does not give {what}: status {status}")
