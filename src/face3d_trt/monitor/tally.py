"""What many readings of a GPU come to over a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

N = TypeVar("N", int, float)
# Bits of nvmlDeviceGetCurrentClocksEventReasons, nvml.h. Bit 0, idle, slows nobody down.
THROTTLES = {
    0x002: "clock setting",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability",
}
_LOOKS_BACK_S = 1.0  # NVML's utilisation is that of up to so long before


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment, whichever process makes it work.

    Attributes:
        utilization: Share of NVML's last sampling period (1/6 s to 1 s) with a kernel running, 0 to 1.
        memory_used: Bytes, the driver's own included.
        memory_total: Bytes.
        temperature_c: Of the chip.
        watts: Of the board; from Ampere on, over NVML's last second.
        energy_j: Since the driver was loaded.
        sm_mhz: Clock of the multiprocessors.
        memory_mhz: Clock of the memory.
        throttled: Why the clocks are lower than they could be; words of THROTTLES.
    """

    utilization: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    temperature_c: float | None = None
    watts: float | None = None
    energy_j: float | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """One GPU over a time, whichever process made it work; None where NVML does not tell.

    Attributes:
        watts: `energy_j` over `seconds`.
        utilization: Share of the time with a kernel running, 0 to 1.
        sm_mhz: Mean.
        memory_mhz: Mean.
        temperature_c: Highest.
        throttled: Every reason that was seen.
        energy_j: By the board's counter, which ticks about ten times a second; else power, integrated.
        seconds: Between the first reading and the last.
        memory_used_peak: Bytes of the whole GPU.
    """

    watts: float | None = None
    utilization: float | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] = ()
    energy_j: float | None = None
    seconds: float = 0.0
    memory_used_peak: int | None = None


@dataclass
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.count += 1

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass
class Tally:
    """Readings as they come, in memory that does not grow."""

    begun: float | None = None  # seconds, of the clock that `add` is given
    ended: float = 0.0
    last: Reading = field(default_factory=Reading)
    _early: _Mean = field(default_factory=_Mean)  # utilisation that says something of the time before
    _busy: _Mean = field(default_factory=_Mean)
    _sm: _Mean = field(default_factory=_Mean)
    _memory: _Mean = field(default_factory=_Mean)
    _hottest: float | None = None
    _most_used: int | None = None
    _reasons: frozenset[str] = frozenset()
    _first_j: float | None = None
    _last_j: float | None = None
    _integral: float | None = None

    def add(self, reading: Reading, now: float) -> None:
        """Take a reading of the time `now`, in seconds."""
        if self.begun is None:
            self.begun = self.ended = now
        elif reading.watts is not None and self.last.watts is not None:
            step = (reading.watts + self.last.watts) / 2 * (now - self.ended)
            self._integral = (self._integral or 0.0) + step
        (self._busy if now - self.begun >= _LOOKS_BACK_S else self._early).add(reading.utilization)
        self._sm.add(reading.sm_mhz)
        self._memory.add(reading.memory_mhz)
        self._hottest = _larger(self._hottest, reading.temperature_c)
        self._most_used = _larger(self._most_used, reading.memory_used)
        self._reasons |= frozenset(reading.throttled)
        if reading.energy_j is not None:
            self._first_j = reading.energy_j if self._first_j is None else self._first_j
            self._last_j = reading.energy_j
        self.last, self.ended = reading, now

    def summary(self) -> Summary:
        """What they come to."""
        seconds = self.ended - (self.ended if self.begun is None else self.begun)
        energy = self._integral
        if self._first_j is not None and self._last_j is not None and self._last_j > self._first_j:
            energy = self._last_j - self._first_j
        return Summary(
            watts=energy / seconds if energy is not None and seconds else self.last.watts,
            utilization=self._early.value if self._busy.value is None else self._busy.value,
            sm_mhz=self._sm.value,
            memory_mhz=self._memory.value,
            temperature_c=self._hottest,
            throttled=tuple(word for word in THROTTLES.values() if word in self._reasons),
            energy_j=energy,
            seconds=seconds,
            memory_used_peak=self._most_used,
        )


def _larger(one: N | None, other: N | None) -> N | None:
    return other if one is None else one if other is None else max(one, other)
