"""Limits on a GPU's temperature and memory, kept by smaller batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.errors import UsageError
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.monitor.tally import Reading

SETTLE_S = 5.0  # that a smaller batch is given to show in the reading
RECOVER_S = 30.0  # below the limits before batches grow again
COOLER_C, FREER = 3.0, 0.05  # below the limit by so much counts as below: else batches would swing about it


@dataclass(frozen=True)
class Limits:
    """What a GPU is held to; None: to nothing.

    Attributes:
        temperature_c: Of the chip, °C.
        memory: Share of the GPU's memory in use, by all processes, above 0 and up to 1.

    Raises:
        UsageError: Outside of what a GPU can keep.
    """

    temperature_c: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        if self.temperature_c is not None and not 30 <= self.temperature_c <= 120:
            raise UsageError(f"no GPU is held to {self.temperature_c:g} °C", allowed="30 to 120")
        if self.memory is not None and not 0 < self.memory <= 1:
            raise UsageError(f"{self.memory:g} is no share of the memory", allowed="above 0 and up to 1, such as 0.9")

    def __bool__(self) -> bool:
        return self.temperature_c is not None or self.memory is not None

    def exceeded(self, reading: Reading) -> str | None:
        """What is over its limit: "88 °C, limit 85"; None: nothing. A figure that is not told exceeds nothing."""
        if self.temperature_c is not None and (reading.temperature_c or 0) > self.temperature_c:
            return f"{reading.temperature_c:.0f} °C, limit {self.temperature_c:g}"
        used = memory_share(reading)
        if self.memory is not None and used is not None and used > self.memory:
            return f"{used:.0%} of its memory used, limit {self.memory:.0%}"
        return None

    def kept(self, reading: Reading) -> bool:
        """Whether every limited figure is below its limit by a margin."""
        used = memory_share(reading)
        warm = self.temperature_c is not None and (reading.temperature_c or 0) > self.temperature_c - COOLER_C
        full = self.memory is not None and (used or 0) > self.memory - FREER
        return not warm and not full

    def untold(self, reading: Reading) -> list[str]:
        """Limited figures that the reading does not have."""
        found = [
            ("temperature", self.temperature_c, reading.temperature_c),
            ("memory", self.memory, reading.memory_used),
        ]
        return [name for name, limit, figure in found if limit is not None and figure is None]


class Governor:
    """Answers which batch size the limits allow now: halved while one is exceeded, doubled once all were kept a while.

        with Sampler(0, 1.0) as sampler:
            governor = Governor(Limits(temperature_c=85), sampler.latest, device=0, report=report)
            size = governor.batch(64)

    Every change is reported once. Threads may share it.

    Args:
        limits: What is kept.
        latest: The GPU's newest reading.
        device: Its number, for messages.
        report: Warned of changes.
        clock: Seconds.
    """

    def __init__(
        self,
        limits: Limits,
        latest: Callable[[], Reading],
        *,
        device: int = 0,
        report: Reporter = SILENT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits, self._latest, self._device = limits, latest, device
        self._report, self._clock = report, clock
        self._lock = threading.Lock()
        self._full = 1  # the largest batch that was asked for: the last one of a run may be smaller
        self._allowed: int | None = None
        self._changed: float | None = None  # when `_allowed` last was
        self._kept_since: float | None = None
        self._said: set[str] = set()

    @property
    def allowed(self) -> int | None:
        """The largest batch at present; None: the limits hold nothing down."""
        return self._allowed

    def batch(self, asked: int) -> int:
        """The batch to run now, at most `asked` and at least 1."""
        if not self._limits:
            return asked
        with self._lock:
            reading, now = self._latest(), self._clock()
            self._full = max(self._full, asked)
            self._say_untold(reading)
            if (why := self._limits.exceeded(reading)) is not None:
                self._kept_since = None
                self._lower(why, now)
            elif not self._limits.kept(reading):
                self._kept_since = None
            elif self._allowed is not None:
                self._recover(now)
            return asked if self._allowed is None else min(asked, self._allowed)

    def _lower(self, why: str, now: float) -> None:
        if self._changed is not None and now - self._changed < SETTLE_S:
            return
        before = self._full if self._allowed is None else self._allowed
        self._changed = now
        if before == 1:
            self._allowed = 1
            self._once(f"GPU {self._device} is over its limit at batches of 1: {why}", key="least")
            return
        self._allowed = before // 2
        self._report.warn(f"GPU {self._device}: {why}; batches of {self._allowed} instead of {before}")

    def _recover(self, now: float) -> None:
        assert self._allowed is not None
        if self._kept_since is None:
            self._kept_since = now
        if now - self._kept_since < RECOVER_S:
            return
        before, self._kept_since, self._changed = self._allowed, now, now
        self._allowed = None if 2 * before >= self._full else 2 * before
        self._said.discard("least")
        size = self._full if self._allowed is None else self._allowed
        self._report.stage(f"GPU {self._device} is within its limits again: batches of {size} instead of {before}")

    def _say_untold(self, reading: Reading) -> None:
        for name in self._limits.untold(reading):
            self._once(f"GPU {self._device} does not tell its {name}: that limit is not kept", key=name)

    def _once(self, text: str, key: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._report.warn(text)


def memory_share(reading: Reading) -> float | None:
    """Of the GPU's memory that is in use, 0 to 1."""
    if reading.memory_used is None or not reading.memory_total:
        return None
    return reading.memory_used / reading.memory_total
