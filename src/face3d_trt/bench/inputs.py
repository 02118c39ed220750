"""What is timed on: noise, as zeros draw less power and run at higher clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from face3d_trt.bench.backend import Case
    from face3d_trt.runtime.interface import HostArray

SETS = 4  # inputs in rotation
_SMALL_SETS = 2  # of large batches: with 154 MB a set, no cache holds two
_LARGE = 64 << 20  # bytes of a set


def sets_for(case: Case) -> int:
    """How many inputs take turns."""
    nbytes = int(np.prod(case.shape)) * (1 if case.input == "uint8" else 4)
    return _SMALL_SETS if nbytes > _LARGE else SETS


def random_input(case: Case, seed: int) -> HostArray:
    """Pictures of noise in the case's layout: float32 of 0 to 1, or uint8.

    Args:
        case: Of which shape and type.
        seed: Which of them.
    """
    random = np.random.default_rng(seed)
    if case.input == "uint8":
        return random.integers(0, 256, case.shape, dtype=np.uint8)
    return random.random(case.shape, dtype=np.float32)


def random_inputs(case: Case) -> list[HostArray]:
    """The inputs that take turns, each another."""
    return [random_input(case, seed) for seed in range(sets_for(case))]
