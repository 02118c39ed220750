"""The GPUs of this machine, all read at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.errors import UsageError
from face3d_trt.monitor import memory
from face3d_trt.monitor.nvml import NvmlGpu

if TYPE_CHECKING:
    from face3d_trt.monitor.tally import Reading


@dataclass(frozen=True)
class GpuState:
    """One GPU at one moment; `index` is its number in CUDA's order."""

    index: int
    name: str
    reading: Reading


class Gpus:
    """GPUs that stay open for reading. Close it, or use it as a context manager.

    Args:
        devices: In CUDA's order; None: all that CUDA shows to this process.

    Raises:
        MissingError: There is no GPU, or NVML or nvidia-ml-py is missing.
        UsageError: One of `devices` is not there.
    """

    def __init__(self, devices: Iterable[int] | None = None) -> None:
        count = memory.gpu_count()
        wanted = tuple(range(count)) if devices is None else tuple(devices)
        if beyond := [index for index in wanted if not 0 <= index < count]:
            raise UsageError(f"there is no GPU {beyond[0]}", allowed=f"0 to {count - 1}, as CUDA counts them")
        with contextlib.ExitStack() as opened:
            self._gpus = tuple(opened.enter_context(NvmlGpu(index)) for index in wanted)
            self._names = tuple(gpu.name for gpu in self._gpus)
            self._opened = opened.pop_all()

    def __enter__(self) -> Gpus:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def read(self) -> tuple[GpuState, ...]:
        """What they are doing now."""
        return tuple(GpuState(gpu.index, name, gpu.read()) for gpu, name in zip(self._gpus, self._names, strict=True))

    def close(self) -> None:
        """End the use of NVML."""
        self._opened.close()
