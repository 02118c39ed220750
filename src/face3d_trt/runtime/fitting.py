"""Keeping an engine within a limit of memory on the GPU: fewer slots, then smaller pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from face3d_trt.errors import MissingError

if TYPE_CHECKING:
    from face3d_trt.runtime.inputs import Spec
    from face3d_trt.runtime.pieces import Limits

_FEWEST = 2  # slots of a lane: one is filled while the other runs


@dataclass(frozen=True)
class Budget:
    """What an engine may take on the GPU.

    Args:
        limit: Bytes; None: no limit.
        plan_bytes: Size of the plan, which is that of its weights but for some per cent.
    """

    limit: int | None
    plan_bytes: int

    def fit(self, spec: Spec, scratch: int, contexts: int, ring: int) -> int:
        """Narrow `spec.limits` until everything fits, and say how many slots a lane may have.

        Args:
            spec: Of the engine; not used before.
            scratch: Bytes that TensorRT needs for a context.
            contexts: Lanes.
            ring: Slots of a lane where memory is no matter.

        Raises:
            MissingError: Not even the smallest piece fits.
        """
        if self.limit is None:
            return ring
        fixed = self.plan_bytes + contexts * scratch
        for slots in range(ring, _FEWEST - 1, -1):
            room = (self.limit - fixed) // (contexts * slots)
            narrowed = tuple(found for each in spec.limits if (found := _narrow(each, room // _row(spec, each))))
            if narrowed == spec.limits or (narrowed and slots == _FEWEST):
                spec.limits = narrowed
                return slots
        least = min(each.batch[0] * _row(spec, each) for each in spec.limits) * contexts * _FEWEST
        raise MissingError(
            f"memory_limit={self.limit:,} is too small: plan {self.plan_bytes:,}, scratch {contexts} x {scratch:,}, "
            f"buffers of the smallest batch {least:,} bytes",
            allowed=f"{fixed + least:,} bytes or more",
            run="face3d-trt build --workspace ... --profile ...    # less scratch: a smaller max",
        )


def _row(spec: Spec, limits: Limits) -> int:
    """Bytes of a row in a slot, at the largest pictures of a profile."""
    pixels = limits.height[2] * limits.width[2] * 3 * spec.dtype.itemsize
    return pixels + sum(spec.row_bytes(each.name) for each in spec.outputs)


def _narrow(limits: Limits, rows: int) -> Limits | None:
    low, usual, high = limits.batch
    if rows < low:
        return None
    return replace(limits, batch=(low, min(usual, rows), min(high, rows)))
