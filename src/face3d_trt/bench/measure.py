"""The figures of one backend at one case: warm-up, windows that agree, single calls, what the GPU did meanwhile."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.bench.records import Device, Latency, Rate
from face3d_trt.bench.timing import NEEDED, latencies, steady

if TYPE_CHECKING:
    from face3d_trt.bench.backend import Ready

_MOST_WINDOWS = 12
_MOST_CALLS = 5000
_LEAST_CALLS = 3  # however long one takes
_DEVICE_S = 1.2  # the board's energy counter ticks ten times a second, its utilisation looks back a second
_SHORT_DEVICE_S = 0.8  # for who is in a hurry: energy within an eighth, utilisation with the windows before in it
_HURRY_S = 1.0  # of a row


@dataclass(frozen=True)
class Pace:
    """How long measuring one row takes, about.

    Attributes:
        seconds: In all, once the backend is ready: a sixth warms up, a fifth and more are windows, a third are single
            calls, a third runs under the eyes of NVML.
    """

    seconds: float = 3.0

    @property
    def warm_up_s(self) -> float:
        """Before anything counts."""
        return self.seconds / 6

    @property
    def window_s(self) -> float:
        """Of calls back to back."""
        return self.seconds / 15

    @property
    def singles_s(self) -> float:
        """For single calls."""
        return self.seconds / 3

    @property
    def device_s(self) -> float:
        """For what NVML tells."""
        return max(_DEVICE_S if self.seconds >= _HURRY_S else _SHORT_DEVICE_S, self.seconds / 3)


def warm_up(ready: Ready, pace: Pace) -> int:
    """Run until clocks, caches and allocators are as in service; gives how many calls make a window."""
    begun, loops = time.monotonic(), 1
    while True:
        took = ready.window_ms(loops)
        loops = max(1, round(pace.window_s * 1000 / max(took, 1e-3)))
        if time.monotonic() - begun >= pace.warm_up_s:
            return loops


def rate(ready: Ready, batch: int, loops: int, pace: Pace) -> Rate:
    """Calls back to back, in windows until three agree."""
    begun = time.monotonic()
    with no_collector():
        first = ready.window_ms(loops)
    took = time.monotonic() - begun
    most = min(_MOST_WINDOWS, max(NEEDED, round(2 * pace.seconds / max(took, 1e-6))))
    windows = iter([first])
    with no_collector():
        found = steady(lambda: next(windows, 0.0) or ready.window_ms(loops), most=most)
    return Rate(
        ms=found.value,
        images_per_second=batch / found.value * 1000,
        spread=found.spread,
        settled=found.stable,
        windows=found.windows,
    )


def latency(ready: Ready, pace: Pace, *, waits: bool) -> Latency:
    """Single calls, each waited for.

    Args:
        ready: The backend.
        pace: How long.
        waits: Whether a call has its result when it returns, so that nothing else need be waited for.
    """
    took: list[int] = []
    with no_collector():
        end = time.monotonic() + pace.singles_s
        while len(took) < _LEAST_CALLS or (time.monotonic() < end and len(took) < _MOST_CALLS):
            begun = time.perf_counter_ns()
            ready.call()
            if not waits:
                ready.finish()
            took.append(time.perf_counter_ns() - begun)
    found = latencies(took)
    kept = {name: found[name] for name in ("p50", "p90", "p95", "p99", "mean", "max")}
    return Latency(calls=len(took), **kept)


def device(ready: Ready, batch: int, loops: int, index: int, pace: Pace) -> Device:
    """What the GPU does while calls run back to back, by NVML; all None where it does not tell.

    Args:
        ready: The backend.
        batch: Pictures of a call.
        loops: Calls of a window.
        index: Of the GPU.
        pace: How long.
    """
    from face3d_trt.monitor.nvml import Sampler

    images = 0
    with no_collector(), Sampler(index) as sampler:
        begun = time.monotonic()
        while time.monotonic() - begun < pace.device_s:
            ready.window_ms(loops)
            images += loops * batch
    found = sampler.summary()
    return Device(
        watts=found.watts,
        images_per_joule=images / found.energy_j if found.energy_j else None,
        utilization=found.utilization,
        sm_mhz=found.sm_mhz,
        memory_mhz=found.memory_mhz,
        temperature_c=found.temperature_c,
        throttled=found.throttled,
    )


@contextmanager
def no_collector() -> Iterator[None]:
    """Python's garbage collector rests: its pauses are no property of a backend. Within another such block, nothing."""
    collects = gc.isenabled()
    if collects:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
