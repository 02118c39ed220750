"""What the engines are fed: made by numpy alone, the same in both interpreters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

SIDE = 224
SETS = 4  # inputs in rotation, so that no run finds the former one's data in a cache


def random_input(batch: int, layout: str, seed: int) -> npt.NDArray[Any]:
    """Noise for timing.

    Args:
        batch: Rows.
        layout: "uint8" for (batch, 224, 224, 3), "float32" for (batch, 3, 224, 224), 0..1.
        seed: Of the noise.
    """
    rng = np.random.default_rng([seed, batch])
    if layout == "uint8":
        return rng.integers(0, 256, (batch, SIDE, SIDE, 3), np.uint8)
    return rng.random((batch, 3, SIDE, SIDE), np.float32)


def different_pictures(count: int, layout: str = "uint8", seed: int = 0) -> npt.NDArray[Any]:
    """Patterns that a network answers very differently: coloured blocks of several sizes, each with a tint of its own.

    Args:
        count: Of pictures.
        layout: As for `random_input`.
        seed: Of the patterns.
    """
    rng = np.random.default_rng(seed)
    made = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for index in range(count):
        cells = (4, 8, 16, 32)[index % 4]
        blocks = rng.random((cells, cells, 3)) * rng.uniform(0.3, 1.0, 3) * 255
        made[index] = blocks.repeat(SIDE // cells, 0).repeat(SIDE // cells, 1).astype(np.uint8)
    if layout == "uint8":
        return made
    return np.ascontiguousarray(made.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)
