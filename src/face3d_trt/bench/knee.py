"""Where throughput stops growing with the batch, and which batch a latency limit allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.bench.records import Row

SHARE = 0.95  # of the best rate: the smallest batch that reaches it is the knee


def knee(rates: Mapping[int, float], share: float = SHARE) -> int | None:
    """The smallest batch whose rate reaches `share` of the best rate of all; None without rates.

    Args:
        rates: Batch to images per second.
        share: Of the best, 0 to 1.
    """
    if not rates:
        return None
    wanted = share * max(rates.values())
    return min(batch for batch, rate in rates.items() if rate >= wanted)


def rates_of(rows: Iterable[Row]) -> dict[int, float]:
    """Images per second by batch."""
    return {row.batch: row.rate.images_per_second for row in rows if row.rate is not None}


def within(rows: Iterable[Row], limit_ms: float) -> int | None:
    """The knee among the batches whose 99 % latency keeps a limit; None where no batch does.

    Args:
        rows: Of one series.
        limit_ms: Milliseconds that 99 of 100 single calls may take.
    """
    kept = [row for row in rows if row.latency is not None and row.latency.p99 <= limit_ms]
    return knee(rates_of(kept))
