"""How much of its limits an error uses, so that mm, dB and shares can be held against each other. 1 is the limit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.parity.verdict import Failure, MeaningRow, Row


def strain(measure: str, value: float, allowed: float) -> float:
    """The error in the value of a measure over the error that is allowed.

    Args:
        measure: A key of `meaning.MEASURES`. Of PSNR the error is the root mean square, of SSIM the distance from 1.
        value: What was found.
        allowed: The limit.

    Returns:
        Infinity where nothing is allowed, or the value is not finite.
    """
    if measure.endswith("_psnr"):
        return math.inf if not math.isfinite(value) else 10 ** ((allowed - value) / 20)
    if measure.endswith("_ssim"):
        value, allowed = 1 - value, 1 - allowed
    return _share(value, allowed)


def meaning_strain(row: MeaningRow) -> float | None:
    """The most that median, 95 % and worst use of their limits; None: there are no limits, or they do not count."""
    pairs = (
        (row.median, row.allowed_median),
        (row.p95, row.allowed_p95),
        (row.worst, row.allowed_worst),
    )
    used = [strain(row.measure, value, allowed) for value, allowed in pairs if allowed is not None]
    return max(used, default=None) if row.gated else None


def row_strain(row: Row) -> float | None:
    """The most that the figures of an output or group use of their limits; None: the limits do not count."""
    if row.nan or row.inf:
        return math.inf
    if not row.gated:
        return None
    return max(
        _share(row.relative, row.allowed_relative),
        _share(row.worst, row.allowed_worst),
        _share(1 - row.cosine, 1 - row.allowed_cosine),
    )


def failure_strain(failure: Failure) -> float:
    """How far beyond its limit a failure is; infinity where it is not about a limit."""
    if failure.measured is None or failure.allowed is None or (failure.group is None and failure.kind == "meaning"):
        return math.inf
    if failure.kind == "meaning":
        return strain(str(failure.group), failure.measured, failure.allowed)
    if failure.kind == "cosine":
        return _share(1 - failure.measured, 1 - failure.allowed)
    return _share(failure.measured, failure.allowed)


def _share(value: float, allowed: float) -> float:
    if not math.isfinite(value):
        return math.inf
    if value <= 0:
        return 0.0
    return value / allowed if allowed > 0 else math.inf
