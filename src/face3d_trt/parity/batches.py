"""Which batches are run: for every profile its smallest, its opt, its max and a ragged size, filled with pictures."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import PlanError, UsageError
from face3d_trt.names import CROP, MAX_SIDE, MIN_SIDE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from face3d_trt.records import ProfileRecord

# The most pictures that are run alone; every other batch size sees all. The same pictures everywhere let the figures of
# batch 1 be held against the others', and no hard one among a few decides there: of 64, one weighs an eighth in a root
# mean square. More would only take time.
ALONE = 64
RAGGED = 3  # the ragged size where max - 1 is taken already


@dataclass(frozen=True)
class Batch:
    """One size at which everything is run.

    Attributes:
        profile: Index of the optimization profile.
        size: Rows.
        height: Of the input, in pixels.
        width: Of the input, in pixels.
    """

    profile: int
    size: int
    height: int
    width: int

    @property
    def label(self) -> str:
        """`32 at 224x224 (profile 0)`."""
        return f"{self.size} at {self.height}x{self.width} (profile {self.profile})"

    def fill(self, pictures: int) -> Iterator[npt.NDArray[np.intp]]:
        """Indices of pictures, one array of `size` for each run; cycled, so that every row is a picture.

        All pictures, but at size 1 no more than ALONE, evenly spread over them.
        """
        if self.size == 1 and pictures > ALONE:
            yield from np.linspace(0, pictures - 1, ALONE).round().astype(np.intp).reshape(-1, 1)
            return
        runs = math.ceil(pictures / self.size)
        yield from np.arange(runs * self.size, dtype=np.intp).reshape(runs, self.size) % pictures


def batches(profiles: Sequence[ProfileRecord], layout: Literal["float32", "uint8"]) -> tuple[Batch, ...]:
    """Every profile's batch sizes, in ascending order, at the profile's image sizes.

    Args:
        profiles: Of the manifest; float32 input is (batch, 3, height, width), uint8 input (batch, height, width, 3).
        layout: Which of the two.

    Returns:
        For each profile: min, opt, max, and a ragged size between them: max - 1, or 3 where max - 1 is taken.

    Raises:
        PlanError: There is no profile, or one that is not of that layout.
    """
    if not profiles:
        raise PlanError("the manifest has no optimization profile", run="face3d-trt build")
    found: list[Batch] = []
    for index, profile in enumerate(profiles):
        low, opt, high = (_sizes(shape, layout, index) for shape in (profile.min, profile.opt, profile.max))
        sizes = [low, opt, high]
        taken = {low[0], opt[0], high[0]}
        ragged = next((n for n in (high[0] - 1, RAGGED) if low[0] < n < high[0] and n not in taken), None)
        if ragged is not None:
            sizes.append((ragged, *opt[1:]))
        found += [Batch(index, *size) for size in sorted(set(sizes))]
    return tuple(found)


def _sizes(shape: tuple[int, ...], layout: str, profile: int) -> tuple[int, int, int]:
    channels = 1 if layout == "float32" else 3
    if len(shape) != 4 or shape[channels] != 3:
        expected = "(batch, 3, height, width)" if layout == "float32" else "(batch, height, width, 3)"
        raise PlanError(f"profile {profile} has the shape {shape}", allowed=expected, run="face3d-trt build")
    batch, height, width = (side for axis, side in enumerate(shape) if axis != channels)
    return batch, height, width


def parse_image_size(text: str) -> tuple[int, int]:
    """Read `160x192`: height and width of the input in pixels.

    Raises:
        UsageError: It is not two numbers, or a side that the graph does not take.
    """
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text.strip().lower())
    height, width = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (MIN_SIDE <= height <= MAX_SIDE and MIN_SIDE <= width <= MAX_SIDE):
        raise UsageError(
            f"--size {text!r} is not an image size",
            allowed=f"HEIGHTxWIDTH, each from {MIN_SIDE} to {MAX_SIDE} pixels",
            run=f"--size {CROP}x{CROP}",
        )
    return height, width


def resize(crops: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Crops at another size, for profiles that are not of the training crop's size.

    Args:
        crops: (N, H, W, 3) uint8 RGB.
        height: Wanted, in pixels.
        width: Wanted, in pixels.
    """
    if crops.shape[1:3] == (height, width):
        return crops
    from PIL import Image

    size = (width, height)
    return np.stack([np.asarray(Image.fromarray(crop).resize(size, Image.Resampling.BICUBIC)) for crop in crops])
