"""Optimization profiles: the input shapes that a plan is built for."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from face3d_trt.errors import ProfileError
from face3d_trt.names import CROP, MAX_BATCH, MAX_SIDE, MIN_SIDE

Layout = Literal["float32", "uint8"]
Shape = tuple[int, int, int, int]

_CHANNELS = 3
_AXES: dict[str, tuple[str, str, str, str]] = {
    "float32": ("batch", "channels", "height", "width"),
    "uint8": ("batch", "height", "width", "channels"),
}
_DEFAULT_BATCHES = (1, 8, 32)  # one face, a group photo, a server's queue
_FIELDS = ("min", "opt", "max")
_SHAPE = re.compile(r"\d+(x\d+)*")
_MAX_VOLUME = 2**31 - 1  # TensorRT's limit for one tensor


@dataclass(frozen=True)
class Profile:
    """Smallest, usual and largest shape of the input; TensorRT tunes for `opt` and refuses what is outside.

        Profile.parse("min=1x3x224x224,opt=8x3x224x224,max=32x3x224x224")

    Args:
        min: (batch, 3, height, width), or (batch, height, width, 3) for a uint8 graph.
        opt: Likewise.
        max: Likewise.
    """

    min: Shape
    opt: Shape
    max: Shape

    @classmethod
    def default(cls, layout: Layout) -> Profile:
        """Batch 1 to 32, tuned for 8, at 224 × 224."""
        sides = {"float32": (_CHANNELS, CROP, CROP), "uint8": (CROP, CROP, _CHANNELS)}[layout]
        return cls(*((batch, *sides) for batch in _DEFAULT_BATCHES))

    @classmethod
    def parse(cls, text: str) -> Profile:
        """Read `min=1x3x224x224,opt=8x3x224x224,max=32x3x224x224`; the three may come in any order.

        Raises:
            ProfileError: A part is missing, given twice, unknown, not a shape or not of four dimensions.
        """
        shapes: dict[str, Shape] = {}
        for part in text.replace(" ", "").split(","):
            name, _, shape = part.partition("=")
            if name not in _FIELDS:
                raise _error(text, f"{part!r} does not begin with min=, opt= or max=")
            if name in shapes:
                raise _error(text, f"{name} stands there twice")
            if not _SHAPE.fullmatch(shape):
                raise _error(text, f"{name} is {shape!r}, not four numbers joined by x")
            sizes = [int(size) for size in shape.split("x")]
            if len(sizes) != 4:
                raise _error(text, f"{name} has {len(sizes)} dimensions, not 4")
            shapes[name] = (sizes[0], sizes[1], sizes[2], sizes[3])
        if missing := [name for name in _FIELDS if name not in shapes]:
            raise _error(text, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        return cls(**shapes)

    def check(self, layout: Layout) -> None:
        """Compare with what the exported graph takes.

        Raises:
            ProfileError: A dimension is outside the graph's range, or min, opt and max are not in ascending order.
        """
        for axis, dimension in enumerate(_AXES[layout]):
            low, middle, high = (shape[axis] for shape in (self.min, self.opt, self.max))
            for name, size in zip(_FIELDS, (low, middle, high), strict=True):
                self._check_size(layout, f"{dimension} of {name}", dimension, size)
            if not low <= middle <= high:
                raise _error(
                    str(self),
                    f"{dimension} is min={low}, opt={middle}, max={high}: not ascending",
                    layout,
                    "min <= opt <= max",
                )
        if (volume := math.prod(self.max)) > _MAX_VOLUME:
            raise _error(str(self), f"max has {volume:,} values", layout, f"at most {_MAX_VOLUME:,} values in an input")

    def _check_size(self, layout: Layout, where: str, dimension: str, size: int) -> None:
        if dimension == "batch" and not 1 <= size <= MAX_BATCH:
            raise _error(str(self), f"{where} is {size}", layout, f"a batch from 1 to {MAX_BATCH}")
        if dimension == "channels" and size != _CHANNELS:
            order = "(batch, 3, height, width)" if layout == "float32" else "(batch, height, width, 3)"
            raise _error(
                str(self), f"{where} is {size}", layout, f"3 channels (RGB); this graph takes {order} {layout}"
            )
        if dimension in ("height", "width") and not MIN_SIDE <= size <= MAX_SIDE:
            raise _error(str(self), f"{where} is {size}", layout, f"{dimension} from {MIN_SIDE} to {MAX_SIDE}")

    def __str__(self) -> str:
        return ",".join(
            f"{name}={'x'.join(map(str, shape))}"
            for name, shape in zip(_FIELDS, (self.min, self.opt, self.max), strict=True)
        )


def _error(text: str, problem: str, layout: Layout = "float32", allowed: str | None = None) -> ProfileError:
    return ProfileError(
        f"profile {text!r}: {problem}",
        allowed=allowed or "min, opt and max, each four numbers joined by x",
        run=f"face3d-trt build --profile '{Profile.default(layout)}'",
    )
