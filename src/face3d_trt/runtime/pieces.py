"""Which optimization profile takes a batch, and how a batch that none takes whole is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from face3d_trt.errors import InputError
from face3d_trt.names import CROP, MAX_SIDE, MIN_SIDE

if TYPE_CHECKING:
    from face3d_trt.engine.profile import Layout
    from face3d_trt.records import ProfileRecord


class Piece(NamedTuple):
    """Rows `start` to `stop` of a batch, for one run with a profile."""

    start: int
    stop: int
    profile: int  # index in the plan

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.stop - self.start


@dataclass(frozen=True)
class Limits:
    """What one optimization profile takes, axis by axis.

    Args:
        profile: Its index in the plan.
        batch: (min, opt, max) rows.
        height: (min, opt, max) pixels.
        width: Likewise.
    """

    profile: int
    batch: tuple[int, int, int]
    height: tuple[int, int, int]
    width: tuple[int, int, int]

    def holds(self, height: int, width: int) -> bool:
        """Whether pictures of that size fit."""
        return self.height[0] <= height <= self.height[2] and self.width[0] <= width <= self.width[2]

    def __str__(self) -> str:
        rows, tall, wide = (_span(axis) for axis in (self.batch, self.height, self.width))
        return f"batch {rows} at {tall} x {wide}"


ANY_SIZE = Limits(0, (1, 8, 32), (MIN_SIDE, CROP, MAX_SIDE), (MIN_SIDE, CROP, MAX_SIDE))
"""For a graph that is no plan: any size that `export` allows, 32 rows at a time so that memory stays bounded."""


def limits_of(profiles: Sequence[ProfileRecord], layout: Layout) -> tuple[Limits, ...]:
    """The profiles of a plan, by axis.

    Args:
        profiles: In the plan's order.
        layout: "float32": (batch, 3, height, width); "uint8": (batch, height, width, 3).
    """
    first = 2 if layout == "float32" else 1
    found = []
    for index, each in enumerate(profiles):
        axes = [(each.min[axis], each.opt[axis], each.max[axis]) for axis in (0, first, first + 1)]
        found.append(Limits(index, axes[0], axes[1], axes[2]))
    return tuple(found)


def plan_pieces(batch: int, height: int, width: int, profiles: Sequence[Limits]) -> tuple[Piece, ...]:
    """Cut a batch into runs: one where a profile takes it whole, else as few and as large as possible.

        plan_pieces(70, 224, 224, limits)  # profiles 1 to 4 and 1 to 32: rows 0..32, 32..64, 64..70

    A profile fits best when its `opt` is nearest to the batch as a ratio: TensorRT chose its kernels for `opt` rows,
    and how well they fill a GPU goes with how many times more or fewer there are. Of two equally near ones the larger
    `opt` counts, then the one tuned for the nearest picture size, then the narrowest.

    Args:
        batch: Rows, at least 1.
        height: Of the pictures.
        width: Likewise.
        profiles: What the plan has.

    Raises:
        InputError: No profile takes pictures of that size, or no sum of the profiles' batches gives this one.
    """
    fitting = [each for each in profiles if each.holds(height, width)]
    if not fitting and tuple(profiles) == (ANY_SIZE,):
        raise InputError(
            f"pictures of height {height} and width {width} are of no size that an exported graph takes",
            allowed=f"{MIN_SIDE} to {MAX_SIDE} pixels each; the network was trained on {CROP} x {CROP}",
        )
    if not fitting:
        raise InputError(
            f"pictures of height {height} and width {width} fit no optimization profile",
            allowed=describe(profiles),
            run=f"face3d-trt build --profile ...    # with {height} x {width} between its min and max",
        )
    pieces, start = [], 0
    for rows in _sizes(batch, fitting):
        best = min((each for each in fitting if _takes(each, rows)), key=lambda each: _rank(each, rows, height * width))
        pieces.append(Piece(start, start + rows, best.profile))
        start += rows
    return tuple(pieces)


def describe(profiles: Sequence[Limits]) -> str:
    """The profiles for an error message: `batch 1 to 4 at 224 x 224, or batch 1 to 32 at 224 x 224`."""
    return ", or ".join(str(each) for each in profiles)


def _sizes(batch: int, fitting: Sequence[Limits]) -> list[int]:
    """Rows of each piece: full ones of the largest maximum, and a rest that some profile takes."""
    if any(_takes(each, batch) for each in fitting):
        return [batch]
    largest = max(each.batch[2] for each in fitting)
    full, rest = divmod(batch, largest)
    if rest == 0:
        return [largest] * full
    if any(_takes(each, rest) for each in fitting):
        return [largest] * full + [rest]
    for shared in sorted({min(full, 1), full}):  # full pieces that give rows to the rest: one, else all
        if tail := _fewest(shared * largest + rest, fitting):
            return [largest] * (full - shared) + tail
    raise InputError(
        f"a batch of {batch} fits no optimization profile, and no split of it does",
        allowed=describe(fitting),
        run="face3d-trt build --profile ...    # with min=1x...",
    )


def _fewest(rows: int, fitting: Sequence[Limits]) -> list[int]:
    """As few sizes as possible that the profiles take and that sum to `rows`, the largest first; [] if none do."""
    spans = sorted({(each.batch[0], each.batch[2]) for each in fitting})
    never = rows + 1
    counts = [0] + [never] * rows
    for total in range(1, rows + 1):
        for low, high in spans:
            if total >= low:
                counts[total] = min(counts[total], 1 + min(counts[max(0, total - high) : total - low + 1]))
    if counts[rows] >= never:
        return []
    sizes, left = [], rows
    while left:
        size = next(
            size
            for low, high in sorted(spans, key=lambda span: -span[1])
            for size in range(min(high, left), low - 1, -1)
            if counts[left - size] == counts[left] - 1
        )
        sizes.append(size)
        left -= size
    return sorted(sizes, reverse=True)


def _takes(limits: Limits, rows: int) -> bool:
    return limits.batch[0] <= rows <= limits.batch[2]


def _rank(limits: Limits, rows: int, area: int) -> tuple[float, int, int, int]:
    _, tuned, largest = limits.batch
    ratio = max(tuned, rows) / min(tuned, rows)
    return (ratio, -tuned, abs(limits.height[1] * limits.width[1] - area), largest)


def _span(axis: tuple[int, int, int]) -> str:
    low, _, high = axis
    return str(low) if low == high else f"{low} to {high}"
