"""Tables of what speed costs: memory, energy, setup; every row in full; what was skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from face3d_trt.bench.page.series import MODE_TITLES, Named
from face3d_trt.bench.page.table import Table, by_batch
from face3d_trt.bench.page.words import NOTHING, gigabytes, percent, significant

if TYPE_CHECKING:
    from face3d_trt.bench.records import Row


def memory(lines: Sequence[Named]) -> list[Table]:
    """Peaks by batch: of the process on the GPU, of torch's allocator; of the host where no GPU is known."""
    rows = {each.name: each.by_batch for each in lines}
    contexts = {row.memory.context for each in lines for row in each.rows if row.memory.context is not None}
    span = " to ".join(dict.fromkeys(gigabytes(each) for each in (min(contexts), max(contexts)))) if contexts else ""
    note = "Of the whole process, by NVML." + (f" {span} GB of it are a CUDA context and nothing else." if span else "")
    wanted = [
        by_batch("GPU memory, GB", note, rows, lambda row: row.memory.process, gigabytes, best=min),
        by_batch("PyTorch's allocator, GB", "Its peak.", rows, lambda row: row.memory.allocator, gigabytes),
    ]
    if wanted[0] is None:
        host = "Resident set of the process, its libraries included."
        wanted = [by_batch("Host memory, GB", host, rows, lambda row: row.memory.host, gigabytes, best=min)]
    return [table for table in wanted if table is not None]


def energy(lines: Sequence[Named]) -> Table | None:
    """Power and clocks at the largest batch of each series."""
    largest = [(each, timed[-1]) for each in lines if (timed := [row for row in each.rows if row.device.watts])]
    if not largest:
        return None
    found = tuple((each.name, str(row.batch), *_device(row)) for each, row in largest)
    head = ("", "batch", "images/J", "W", "busy", "SM MHz", "memory MHz", "°C", "throttled")
    note = "At the largest batch of each, by NVML, calls back to back. Busy: share of the time with a kernel running."
    return Table("Energy and clocks", note, head, found)


def setup(lines: Sequence[Named]) -> Table | None:
    """Seconds until the first result."""
    rows = {each.name: each.by_batch for each in lines}
    note = "Load, compile, capture: until the first result."
    return by_batch("Setup, s", note, rows, lambda row: row.setup_s, significant)


def every_row(lines: Sequence[Named], mode: str) -> Table | None:
    """All that was measured."""
    timed = [(each, row) for each in lines for row in each.rows if row.rate or row.latency]
    if not timed:
        return None
    head = ("", "batch", "images/s", "ms", "windows", "p50", "p90", "p95", "p99", "max", "GB", "W", "images/J", "MHz")
    note = (
        "ms: a call, back to back; windows: how far those that agree differ (~: they never agreed within the "
        "tolerance). p50 to max: single calls, ms."
    )
    found = tuple((each.name, str(row.batch), *_figures(row)) for each, row in timed)
    return Table(f"Every row, {mode}", note, head, found)


def skipped(lines: Sequence[Named]) -> Table | None:
    """Rows without figures, and why."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for each in lines:
        for row in each.rows:
            if row.skipped is not None:
                key = (each.name, MODE_TITLES[row.mode].lower(), row.skipped)
                reasons.setdefault(key, []).append(str(row.batch))
    if not reasons:
        return None
    found = tuple((name, mode, ", ".join(batches), why) for (name, mode, why), batches in reasons.items())
    return Table("Rows without figures", "", ("", "mode", "batch", "why"), found, 4)


def _figures(row: Row) -> tuple[str, ...]:
    rate, latency = row.rate, row.latency
    speed = (significant(rate.images_per_second), significant(rate.ms)) if rate else (NOTHING, NOTHING)
    windows = f"{'' if rate.settled else '~'}{percent(rate.spread)}" if rate else NOTHING
    waits = [
        significant(getattr(latency, name)) if latency else NOTHING for name in ("p50", "p90", "p95", "p99", "max")
    ]
    nbytes = row.memory.process or row.memory.host
    device = _device(row)
    return (*speed, windows, *waits, gigabytes(nbytes) if nbytes else NOTHING, device[1], device[0], device[3])


def _device(row: Row) -> tuple[str, ...]:
    found = row.device
    whole = [NOTHING if value is None else f"{value:,.0f}" for value in (found.sm_mhz, found.memory_mhz)]
    return (
        NOTHING if found.images_per_joule is None else significant(found.images_per_joule),
        NOTHING if found.watts is None else f"{found.watts:.0f}",
        NOTHING if found.utilization is None else percent(found.utilization),
        *whole,
        NOTHING if found.temperature_c is None else f"{found.temperature_c:.0f}",
        ", ".join(found.throttled) or "no",
    )
