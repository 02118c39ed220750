"""Several runs of one row as one row: medians of what is measured, peaks of what is a peak."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.records import Device, Latency, Memory, Rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from face3d_trt.bench.records import Row


def median_row(runs: Sequence[Row]) -> Row:
    """One row for all runs of it; those that were skipped do not count where another was not.

    Args:
        runs: At least one, in the order of time; they differ in figures only.
    """
    ran = [run for run in runs if run.skipped is None] or list(runs)
    if len(ran) == 1:
        return ran[0]
    return ran[0].model_copy(
        update={
            "rate": _rate([run.rate for run in ran if run.rate], ran[0].batch),
            "latency": _latency([run.latency for run in ran if run.latency]),
            "memory": Memory(**{name: _largest(name, ran) for name in Memory.model_fields}),
            "device": _device([run.device for run in ran]),
            "setup_s": _median(run.setup_s for run in ran),
            "error": _median(run.error for run in ran),
        }
    )


def _rate(rates: Sequence[Rate], batch: int) -> Rate | None:
    if not rates:
        return None
    ms = statistics.median(rate.ms for rate in rates)
    return Rate(
        ms=ms,
        images_per_second=batch / ms * 1000,
        spread=max(rate.spread for rate in rates),
        settled=all(rate.settled for rate in rates),
        windows=tuple(window for rate in rates for window in rate.windows),
    )


def _latency(found: Sequence[Latency]) -> Latency | None:
    if not found:
        return None
    medians = {name: _median(getattr(each, name) for each in found) for name in ("p50", "p90", "p95", "p99", "mean")}
    known = {name: value for name, value in medians.items() if value is not None}
    return Latency(calls=sum(each.calls for each in found), max=max(each.max for each in found), **known)


def _device(found: Sequence[Device]) -> Device:
    names = [name for name in Device.model_fields if name != "throttled"]
    reasons = tuple(dict.fromkeys(reason for each in found for reason in each.throttled))
    medians: dict[str, Any] = {name: _median(getattr(each, name) for each in found) for name in names}
    return Device(throttled=reasons, **medians)


def _largest(name: str, runs: Sequence[Row]) -> int | None:
    return max((value for run in runs if (value := getattr(run.memory, name)) is not None), default=None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
