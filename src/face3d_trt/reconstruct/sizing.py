"""How large a run is: how many processes, how much on its way, how much at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.names import CROP, MAX_SIDE
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.options import BATCH, QUEUE, WORKERS, ReconstructOptions, cores, whole_number
from face3d_trt.reconstruct.photos import AT_ONCE
from face3d_trt.reconstruct.shared import Layout
from face3d_trt.reconstruct.stages import MOST_FACES
from face3d_trt.reconstruct.start import crop_sizes

if TYPE_CHECKING:
    from face3d_trt.reconstruct.messages import Ready
    from face3d_trt.reconstruct.sources import Item

ROWS = 256  # of an array of crops in one item; does not depend on the machine, as names of results hold it
_CROPS_IN_A_GROUP = 64  # pictures that are crops already and take less than a millisecond each
_PHOTO_BYTES = 50 << 20  # of a bay, at most


@dataclass(frozen=True)
class Asked:
    """Numbers that the options or the environment give; None: what suits the machine."""

    workers: int
    batch: int | None
    queue: int | None


@dataclass(frozen=True)
class Size:
    """How large a run is.

    Attributes:
        workers: Processes.
        group: Pictures in a group.
        bays: Groups on their way at most.
        layout: Of a bay.
        batch: Rows of a full batch.
    """

    workers: int
    group: int
    bays: int
    layout: Layout
    batch: int


def asked(options: ReconstructOptions, devices: Sequence[int]) -> Asked:
    """Options, then the environment.

    Raises:
        UsageError: A variable of the environment is no number.
    """
    return Asked(
        workers=whole_number("--workers", options.workers, WORKERS, os.environ) or default_workers(devices),
        batch=whole_number("--batch", options.batch, BATCH, os.environ),
        queue=whole_number("--queue", options.queue, QUEUE, os.environ),
    )


def default_workers(devices: Sequence[int]) -> int:
    """One for each core, less one for each GPU's engine."""
    return max(1, cores() - sum(device != CPU for device in devices))


def size_of(options: ReconstructOptions, items: Sequence[Item], ready: Ready, numbers: Asked, engines: int) -> Size:
    """How large a run is.

    Args:
        options: What is asked for.
        items: All that there is to do.
        ready: What the engines are.
        numbers: What is given.
        engines: How many there are.
    """
    workers, queue = numbers.workers, numbers.queue
    full = max(ready.batch[0], min(numbers.batch or ready.batch[1], ready.batch[1]))
    arrays = any(item.kind == "rows" for item in items)
    pictures = sum(item.kind == "image" for item in items)
    group = 1
    if options.crops_only and not options.keeps_photos and options.decode == "cpu":
        group = max(1, min(_CROPS_IN_A_GROUP, full, -(-pictures // (4 * workers))))
    side = max((max(high, wide) for _, high, _, wide in crop_sizes(options, ready)), default=CROP)
    in_a_bay = ROWS if arrays and not options.keeps_photos else group
    rows = max(in_a_bay, MOST_FACES if options.faces == "all" else 1)
    on_gpu = options.decode == "gpu"
    photo = options.keeps_photos or on_gpu or any(item.kind == "video" for item in items)
    ahead = min(4 * workers, -(-2 * full // in_a_bay) * engines)
    ahead += 2 * AT_ONCE * engines * on_gpu
    bays = 4 * workers + ahead if queue is None else max(2, -(-queue // in_a_bay))
    if photo:
        bays = max(2, min(bays, _available_bytes() // 2 // _PHOTO_BYTES))
    return Size(workers, group, bays, Layout(rows, min(side, MAX_SIDE), photo), full)


def _available_bytes() -> int:
    try:
        for text in Path("/proc/meminfo").read_text().splitlines():
            if text.startswith("MemAvailable:"):
                return int(text.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 8 << 30
