"""Readings of a GPU: each figure by itself, and the energy of a time."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time

import pytest
from tests.monitor.double import FakeNvml, NVMLError

from face3d_trt.errors import MissingError
from face3d_trt.monitor import nvml
from face3d_trt.monitor.memory import bus_address, process_memory
from face3d_trt.monitor.nvml import NvmlGpu, Sampler
from face3d_trt.monitor.tally import THROTTLES, Reading, Summary, Tally

SOME_GPU = pytest.mark.parametrize("some_gpu", ["double", pytest.param("real", marks=pytest.mark.gpu)], indirect=True)
REFUSABLE = {
    "nvmlDeviceGetUtilizationRates": {"utilization"},
    "nvmlDeviceGetMemoryInfo": {"memory_used", "memory_total"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetPowerUsage": {"watts"},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_j"},
    "nvmlDeviceGetClockInfo": {"sm_mhz", "memory_mhz"},
    "nvmlDeviceGetCurrentClocksEventReasons": set(),
}


@SOME_GPU
@pytest.mark.usefixtures("some_gpu")
def test_a_gpu_tells_figures_that_a_gpu_can_have() -> None:
    with NvmlGpu(0) as gpu:
        reading, name = gpu.read(), gpu.name
    assert "NVIDIA" in name or "Tesla" in name
    assert 0 < reading.memory_used <= reading.memory_total
    assert 10 < reading.temperature_c < 110
    assert 1 < reading.watts < 1500
    assert reading.utilization is None or 0 <= reading.utilization <= 1  # none with MIG
    assert 100 <= reading.sm_mhz < 5000
    assert 100 <= reading.memory_mhz < 20000


@SOME_GPU
@pytest.mark.usefixtures("some_gpu")
def test_energy_is_power_over_the_time() -> None:
    with Sampler(0, 0.01) as sampler:
        time.sleep(0.3)
    found = sampler.summary()
    assert 0.3 <= found.seconds < 5
    assert found.energy_j > 0
    assert found.watts == pytest.approx(found.energy_j / found.seconds)
    assert sampler.latest().memory_used <= found.memory_used_peak


def test_units_are_those_of_the_names(fake) -> None:
    fake()
    with NvmlGpu(0) as gpu:
        reading = gpu.read()
    expected = Reading(
        0.93, 20 << 30, 141 << 30, 71.0, 650.0, 7001.0, 1980.0, 3201.0, ("power cap", "thermal slowdown")
    )
    assert reading == expected


@pytest.mark.parametrize("function", REFUSABLE)
@pytest.mark.parametrize("answer", [NVMLError("Not Supported"), None], ids=["refused", "not in this release"])
def test_a_figure_that_is_not_told_takes_no_other_with_it(fake, function, answer) -> None:
    fake(**{function: answer})
    with NvmlGpu(0) as gpu:
        reading = gpu.read()
    fields = set(vars(Reading())) - {"throttled"}
    assert {name for name in fields if getattr(reading, name) is None} == REFUSABLE[function]


def test_an_older_driver_names_the_throttles_otherwise(fake) -> None:
    fake(nvmlDeviceGetCurrentClocksEventReasons=None, nvmlDeviceGetCurrentClocksThrottleReasons=0x80)
    with NvmlGpu(0) as gpu:
        assert gpu.read().throttled == ("power brake",)


def test_nvml_is_given_back_however_it_ends(fake) -> None:
    double = fake()
    with pytest.raises(ZeroDivisionError), Sampler(0, 0.01):
        _ = 1 / 0
    assert double.inits == double.shutdowns == 1
    double = fake(nvmlDeviceGetHandleByPciBusId=NVMLError("Not Found"))
    with pytest.raises(MissingError, match="GPU 0: Not Found"):
        NvmlGpu(0)
    assert double.inits == double.shutdowns == 1


class Said:
    """A reporter that remembers warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.mark.parametrize("lacking", ["package", "driver", "library"])
def test_without_nvml_every_figure_is_none_and_one_warning_says_why(fake, monkeypatch, lacking) -> None:
    fake(nvmlInit=NVMLError("NVML Shared Library Not Found"))
    if lacking == "package":
        monkeypatch.setitem(sys.modules, "pynvml", None)
    if lacking == "driver":
        monkeypatch.undo()
        with contextlib.suppress(MissingError):
            pytest.skip(f"this machine has a GPU: {bus_address(0)!r}")
    report = Said()
    with Sampler(0, report=report) as sampler:
        time.sleep(0.02)
    seconds = sampler.summary().seconds
    assert sampler.summary() == Summary(seconds=seconds)
    assert seconds >= 0.02
    assert len(report.warnings) == 1
    expected = {"package": "pynvml", "driver": "libcuda", "library": "Shared Library Not Found"}
    assert expected[lacking] in report.warnings[0]


def test_the_double_has_the_names_of_the_real_package_and_bits_of_nvml_h() -> None:
    real = pytest.importorskip("pynvml")
    double = FakeNvml()
    assert [name for name in double.figures if not callable(getattr(real, name, None))] == []
    for name in ("NVML_TEMPERATURE_GPU", "NVML_CLOCK_SM", "NVML_CLOCK_MEM"):
        assert getattr(double, name) == getattr(real, name)
    reasons = {name: value for name, value in vars(real).items() if name.startswith("nvmlClocksThrottleReason")}
    bits = {value for value in reasons.values() if isinstance(value, int) and value.bit_count() == 1}
    assert set(THROTTLES) == bits - {real.nvmlClocksThrottleReasonGpuIdle}
    assert THROTTLES[real.nvmlClocksThrottleReasonSwPowerCap] == "power cap"
    assert THROTTLES[real.nvmlClocksThrottleReasonHwThermalSlowdown] == "hardware thermal slowdown"


def test_the_real_package_without_a_driver_is_answered(monkeypatch) -> None:
    pytest.importorskip("pynvml")
    with contextlib.suppress(OSError):
        ctypes.CDLL("libnvidia-ml.so.1")
        pytest.skip("this machine has a driver")
    monkeypatch.setattr(nvml, "bus_address", lambda index: b"0000:18:00.0")
    with pytest.raises(MissingError, match="NVML Shared Library Not Found"):
        NvmlGpu(0)


def test_power_is_integrated_where_there_is_no_counter() -> None:
    tally = Tally()
    for now, watts in [(10.0, 100.0), (11.0, 300.0), (13.0, 300.0)]:  # 200 J, then 600 J
        tally.add(Reading(watts=watts), now)
    assert tally.summary().energy_j == 800.0
    assert tally.summary().watts == pytest.approx(800 / 3)


def test_the_counter_of_energy_goes_before_power_which_lags() -> None:
    tally = Tally()
    for now, joules in [(0.0, 5000.0), (1.0, 5600.0), (2.0, 6200.0)]:
        tally.add(Reading(watts=90.0, energy_j=joules), now)
    assert (tally.summary().energy_j, tally.summary().watts) == (1200.0, 600.0)


def test_utilisation_is_not_that_of_the_second_before() -> None:
    tally = Tally()
    for tenths in range(31):  # idle before it began
        tally.add(Reading(utilization=min(tenths / 10, 1.0)), tenths / 10)
    assert tally.summary().utilization == 1.0
    short = Tally()
    short.add(Reading(utilization=0.5), 0.0)
    assert short.summary().utilization == 0.5


def test_peaks_stay_and_clocks_are_averaged() -> None:
    tally = Tally()
    tally.add(Reading(memory_used=5, temperature_c=80.0, sm_mhz=1000.0, throttled=("sync boost",)), 0.0)
    tally.add(Reading(memory_used=9, temperature_c=70.0, sm_mhz=2000.0, throttled=("power cap",)), 1.0)
    tally.add(Reading(memory_used=2), 2.0)
    found = tally.summary()
    assert (found.memory_used_peak, found.temperature_c, found.sm_mhz) == (9, 80.0, 1500.0)
    assert found.throttled == ("power cap", "sync boost")


@pytest.mark.gpu
def test_a_process_holds_more_once_it_has_a_context() -> None:
    from face3d_trt.monitor.memory import held_context

    before = process_memory(0)
    with held_context(0):
        assert process_memory(0) > 50_000_000
    assert before in {None, 0}
