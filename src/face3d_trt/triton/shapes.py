"""What a plan's profiles mean to Triton, which knows one range of batches, from 1 on, whatever a picture's size is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.records import ProfileRecord

ANY = -1  # a dimension that each request chooses


def largest_batch(profiles: Sequence[ProfileRecord]) -> int:
    """The largest batch up to which every batch fits a profile, at every size that some profile has; 0: not even one.

    Triton sends any number of pictures up to `max_batch_size`. A batch that fits no profile would fail.
    """
    return min(_reach(profiles, each) for each in profiles)


def _reach(profiles: Sequence[ProfileRecord], size: ProfileRecord) -> int:
    """Likewise at the sizes of one profile."""
    reach = 0
    fitting = [each for each in profiles if _covers(each, size)]
    while longer := [each.max[0] for each in fitting if each.min[0] <= reach + 1 and each.max[0] > reach]:
        reach = max(longer)
    return reach


def _covers(profile: ProfileRecord, size: ProfileRecord) -> bool:
    return all(
        low <= least and most <= high
        for low, least, most, high in zip(profile.min[1:], size.min[1:], size.max[1:], profile.max[1:], strict=True)
    )


def input_dims(shape: Sequence[int], profiles: Sequence[ProfileRecord]) -> tuple[int, ...]:
    """An input's dimensions without the batch: a number where all profiles have the same one, ANY where they do not.

    The graph has any height and width; Triton then refuses a picture of another size by itself, and in words.
    """
    dims = []
    for axis, size in list(enumerate(shape))[1:]:
        low, high = min(each.min[axis] for each in profiles), max(each.max[axis] for each in profiles)
        dims.append(size if size != ANY else low if low == high else ANY)
    return tuple(dims)


def preferred_batches(profiles: Sequence[ProfileRecord], largest: int) -> tuple[int, ...]:
    """Batches that are worth to be sent at once: what the profiles are tuned for, and the largest.

    None with a single profile, as NVIDIA advises: Triton sends a preferred batch although a larger one has gathered.
    One picture is not among them: it would be preferred to any gathering.
    """
    if len(profiles) < 2:
        return ()
    sizes = {largest, *(min(each.opt[0], largest) for each in profiles)}
    return tuple(sorted(sizes - {1}))
