"""What one GPU is doing, asked of NVML through nvidia-ml-py; each figure by itself, None where it is not told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from face3d_trt.errors import MissingError
from face3d_trt.monitor.memory import bus_address, process_memory
from face3d_trt.monitor.tally import THROTTLES, Reading, Summary, Tally
from face3d_trt.optional import require
from face3d_trt.report import SILENT, Reporter

__all__ = ["NvmlGpu", "Reading", "Sampler", "Summary", "process_memory"]

T = TypeVar("T")
_PATIENCE_S = 5.0  # a GPU that fell off the bus keeps NVML waiting


class NvmlGpu:
    """One GPU as NVML knows it. Close it, or use it as a context manager.

    Args:
        index: In CUDA's order, CUDA_VISIBLE_DEVICES respected.

    Raises:
        MissingError: nvidia-ml-py is not installed, there is no such GPU, or NVML does not answer.
    """

    def __init__(self, index: int = 0) -> None:
        self.index = index
        address = bus_address(index)
        self._nvml = _started()
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByPciBusId(address)
        except self._nvml.NVMLError as error:
            self.close()
            raise MissingError(f"NVML does not know GPU {index}: {error}", run="face3d-trt doctor") from error

    def __enter__(self) -> NvmlGpu:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """As NVIDIA sells it."""
        return self._ask("nvmlDeviceGetName", str) or f"GPU {self.index}"

    def read(self) -> Reading:
        """What it is doing now."""
        nvml, memory = self._nvml, self._ask("nvmlDeviceGetMemoryInfo", lambda found: (found.used, found.total))
        return Reading(
            utilization=self._ask("nvmlDeviceGetUtilizationRates", lambda rates: rates.gpu / 100),
            memory_used=memory[0] if memory else None,
            memory_total=memory[1] if memory else None,
            temperature_c=self._ask("nvmlDeviceGetTemperature", float, nvml.NVML_TEMPERATURE_GPU),
            watts=self._ask("nvmlDeviceGetPowerUsage", lambda milliwatts: milliwatts / 1e3),
            energy_j=self._ask("nvmlDeviceGetTotalEnergyConsumption", lambda millijoules: millijoules / 1e3),
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", float, nvml.NVML_CLOCK_SM),
            memory_mhz=self._ask("nvmlDeviceGetClockInfo", float, nvml.NVML_CLOCK_MEM),
            throttled=self._throttled(),
        )

    def close(self) -> None:
        """End this use of NVML; other uses in the process go on."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return

    def _throttled(self) -> tuple[str, ...]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", int)
        if bits is None:  # its name before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", int)
        return tuple(word for bit, word in THROTTLES.items() if bits and bits & bit)

    def _ask(self, function: str, convert: Callable[[Any], T], *arguments: Any) -> T | None:
        """None where this GPU, its driver or the package does not have the figure."""
        try:
            return convert(getattr(self._nvml, function)(self._handle, *arguments))
        except (self._nvml.NVMLError, AttributeError):
            return None


class Sampler:
    """Asks a GPU what it is doing while the `with` block runs.

        with Sampler(0) as sampler:
            work()
        print(sampler.summary().watts)

    Utilisation of the first second is left out where there is more: NVML's figure looks back that far.

    Args:
        device_index: In CUDA's order.
        interval_s: Between two readings.
        report: Warned where NVML cannot be asked; every figure is None then.

    Attributes:
        missing: Why it cannot be asked; None where it can.
    """

    def __init__(self, device_index: int, interval_s: float = 0.05, *, report: Reporter = SILENT) -> None:
        self.device_index = device_index
        self.missing: str | None = None
        self._interval, self._report = interval_s, report
        self._tally, self._lock = Tally(), threading.Lock()
        self._gpu: NvmlGpu | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        self._tally, self._stop = Tally(), threading.Event()
        try:
            self._gpu = NvmlGpu(self.device_index)
        except MissingError as error:
            self.missing = str(error)
            self._tally.begun = self._tally.ended = time.monotonic()
            self._report.warn(f"no figures of GPU {self.device_index}: {error}")
            return self
        self._take()
        self._thread = threading.Thread(target=self._run, name="face3d-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self._thread is not None and self._gpu is not None:
            self._thread.join(_PATIENCE_S)
            if not self._thread.is_alive():
                self._take()
                self._gpu.close()
        elif self._gpu is None:
            self._tally.ended = time.monotonic()
        self._thread = self._gpu = None

    def latest(self) -> Reading:
        """The newest reading; one of Nones where there is none."""
        with self._lock:
            return self._tally.last

    def summary(self) -> Summary:
        """Of the time so far, or of the whole block once it has ended."""
        with self._lock:
            return self._tally.summary()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._take()

    def _take(self) -> None:
        if self._gpu is not None:
            reading = self._gpu.read()
            with self._lock:
                self._tally.add(reading, time.monotonic())


def _started() -> ModuleType:
    nvml = require("pynvml", "monitor", "asking what a GPU is doing")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise MissingError(f"NVML, which tells what a GPU is doing: {error}", run="face3d-trt doctor") from error
    return nvml
