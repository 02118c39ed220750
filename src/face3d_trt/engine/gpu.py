"""Which GPUs this process may use, asked of NVIDIA's driver; no CUDA toolkit, no torch."""

from __future__ import annotations

import ctypes
import os

from face3d_trt.records import Gpu

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*, cuda.h


def visible_gpus() -> tuple[Gpu, ...]:
    """GPUs in CUDA's order, CUDA_VISIBLE_DEVICES respected; empty where there is no driver or no GPU.

    Creates no CUDA context.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    load_kernels_when_used()
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    driver = _driver_version()
    return tuple(_describe(cuda, index, driver) for index in range(count.value))


def load_kernels_when_used() -> None:
    """Let CUDA load a kernel when it first runs, not all at once: saves memory. cuInit reads this."""
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")


def _describe(cuda: ctypes.CDLL, index: int, driver: str) -> Gpu:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device)
    return Gpu(
        name=name.value.decode(errors="replace"), compute_capability=f"{major.value}.{minor.value}", driver=driver
    )


def _driver_version() -> str:
    version = ctypes.create_string_buffer(96)
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "unknown"
    if nvml.nvmlInit_v2() or nvml.nvmlSystemGetDriverVersion(version, len(version)):
        return "unknown"
    nvml.nvmlShutdown()
    return version.value.decode(errors="replace")
