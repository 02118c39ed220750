"""A double of nvidia-ml-py's functions for one GPU, which can refuse each of them; NVML cannot exist without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """As pynvml's."""


class FakeNvml:
    """The module pynvml, as far as `monitor` asks it; `figures` is what functions answer, by name.

    A function whose answer is an exception raises it; one that is not among `figures` does not exist, as in an older
    release. The counter of energy goes on by a joule with every call.
    """

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2

    def __init__(self, **changed: Any) -> None:
        self.inits, self.shutdowns, self.energy_mj = 0, 0, 7_000_000
        self.figures: dict[str, Any] = {
            "nvmlDeviceGetHandleByPciBusId": "handle",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=20 << 30, total=141 << 30, free=121 << 30),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=93, memory=40),
            "nvmlDeviceGetTemperature": 71,
            "nvmlDeviceGetPowerUsage": 650_000,
            "nvmlDeviceGetTotalEnergyConsumption": self._energy,
            "nvmlDeviceGetClockInfo": lambda clock: {1: 1980, 2: 3201}[clock],
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x20 | 0x1,
            **changed,
        }

    def __getattr__(self, name: str) -> Any:
        answer = self.figures.get(name)
        if answer is None:
            raise AttributeError(name)

        def function(_handle: Any, *arguments: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return function

    def nvmlInit(self) -> None:  # noqa: N802
        if isinstance(error := self.figures.get("nvmlInit"), Exception):
            raise error
        self.inits += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shutdowns += 1

    def _energy(self) -> int:
        self.energy_mj += 1000
        return self.energy_mj
