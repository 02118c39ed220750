"""What a run runs on."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
from pathlib import Path

from face3d_trt.bench.records import Machine
from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.errors import MissingError
from face3d_trt.monitor.nvml import NvmlGpu

PACKAGES = (
    "numpy",
    "torch",
    "triton",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "pycuda",
    "cuda-python",
    "cuda-bindings",
    "nvidia-ml-py",
    "tensorrt",
    "tensorrt-rtx",
)
_BUSY_CORES = 0.3  # of the cores that others may use before it is said
_BUSY_GPU = 0.05  # of the time of a GPU, likewise


def machine(device: int | None) -> Machine:
    """This machine, as far as a run on `device` is concerned; makes no CUDA context.

    Args:
        device: Index of the GPU; None: the CPU.

    Raises:
        MissingError: There is no such GPU.
    """
    gpus = visible_gpus() if device is not None else ()
    if device is not None and device >= len(gpus):
        allowed = f"0 to {len(gpus) - 1}, or cpu" if gpus else "cpu: no GPU is visible"
        raise MissingError(f"there is no GPU {device}", allowed=allowed, run="nvidia-smi")
    gpu = None if device is None else gpus[device]
    return Machine(
        gpu=gpu.name if gpu else None,
        compute_capability=gpu.compute_capability if gpu else None,
        driver=gpu.driver if gpu else None,
        gpu_memory_bytes=None if device is None else _total_memory(device),
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        system=f"{platform.system()} {platform.machine()}",
        packages=_packages(),
    )


def resident_bytes() -> int | None:
    """Host memory of this process; None where /proc does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def others(device: int | None) -> str | None:
    """What else is at work where a run is to measure, in words; None: nothing, or nobody can say.

    Args:
        device: Index of the GPU; None: the CPU.
    """
    if device is not None:
        try:
            with NvmlGpu(device) as gpu:
                share = gpu.read().utilization or 0.0
        except MissingError:
            return None
        return f"something else keeps GPU {device} busy {share:.0%} of the time" if share > _BUSY_GPU else None
    wanting = os.getloadavg()[0]  # over the last minute
    busy = wanting > _BUSY_CORES * len(os.sched_getaffinity(0))
    return f"{wanting:.1f} processes want a core besides this one" if busy else None


def _packages() -> dict[str, str]:
    """By their metadata: nothing is imported."""
    installed = {each.name.lower(): each.version for each in importlib.metadata.distributions() if each.name}
    found = {name: installed[name] for name in PACKAGES if name in installed}
    for name, version in installed.items():  # tensorrt-cu12, tensorrt-rtx-cu13
        if name.startswith("tensorrt-") and name.rpartition("-")[2].startswith("cu"):
            found.setdefault(name, version)
    return {"python": platform.python_version(), **found}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _total_memory(index: int) -> int | None:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        device, nbytes = ctypes.c_int(), ctypes.c_size_t()
        if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), index):
            return None
        return None if cuda.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device) else int(nbytes.value)
    except (OSError, AttributeError):
        return None
