"""Memory that grows; how time is measured stands in `face3d_trt.bench.timing`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def growth(samples: Sequence[int]) -> int:
    """How far the median of the last tenth is above that of the first; 0 where it is not.

    What comes and goes again in between, as other processes on the same GPU do, is no growth.

    Args:
        samples: In order; the first is taken once everything had been allocated.
    """
    tenth = max(1, len(samples) // 10)
    return max(0, round(statistics.median(samples[-tenth:]) - statistics.median(samples[:tenth]))) if samples else 0


def gpu_growth(samples: Sequence[tuple[int | None, int]]) -> dict[str, Any]:
    """`{"gpu_growth", "gpu_by", "gpu_samples"}` in bytes: by this process where it is known throughout, else by all.

    Args:
        samples: Memory of this process, None where it is not known, and memory in use on the whole GPU.
    """
    own, whole = [each for each, _ in samples if each is not None], [each for _, each in samples]
    known = len(own) == len(whole)
    chosen = own if known else whole
    return {
        "gpu_growth": growth(chosen),
        "gpu_by": "this process" if known else "the whole GPU",
        "gpu_samples": chosen,
    }
