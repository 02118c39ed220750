"""Aligned crops as the array that the exported graph takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import UsageError

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels


def to_input(crops: Pixels, input: str) -> npt.NDArray[Any]:
    """The value of the graph's `input` for crops.

    Args:
        crops: (batch, H, W, 3) uint8 RGB.
        input: What the graph was exported with: "float32" or "uint8".

    Returns:
        "float32": (batch, 3, H, W) float32 RGB 0..1, with neither mean nor standard deviation taken out, as upstream
        feeds it. "uint8": the crops themselves. C-contiguous both.

    Raises:
        UsageError: The crops have another shape or dtype, or there is no such input.
    """
    if crops.ndim != 4 or crops.shape[3] != 3 or crops.dtype != np.uint8:
        raise UsageError(
            f"crops of shape {crops.shape} and dtype {crops.dtype} are not pictures",
            allowed="(batch, height, width, 3) uint8 RGB",
        )
    if input == "uint8":
        return np.ascontiguousarray(crops)
    if input == "float32":
        return np.ascontiguousarray(crops.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)
    raise UsageError(f"there is no graph input {input!r}", allowed="float32, uint8")
