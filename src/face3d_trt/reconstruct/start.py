"""What every run has, on one machine or on many: what decides its results, how it is interrupted, how it ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any

from face3d_trt.files import sha256_file

if TYPE_CHECKING:
    from face3d_trt.monitor.tally import Summary as GpuSummary
    from face3d_trt.reconstruct.messages import Ready
    from face3d_trt.reconstruct.options import ReconstructOptions
    from face3d_trt.reconstruct.stages import Sizes
    from face3d_trt.reconstruct.stats import Status

Watch = Callable[["Status"], None]
Tell = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Summary:
    """How a run ended.

    Attributes:
        counts: Pictures by outcome, earlier runs included.
        here: Pictures of this run.
        status: The last.
        results: The list.
        interrupted: Whether it was asked to stop before the end.
        backend: What computed.
        gpus: What each GPU did, opening the engines included.
    """

    counts: dict[str, int]
    here: int
    status: Status
    results: Path
    interrupted: bool
    backend: str
    gpus: dict[int, GpuSummary]


@dataclass
class Interrupts:
    """Signals that ask for an end.

    Attributes:
        asked: How many there were since the run is under way. Before, and the third time, they interrupt at once.
        hurry: Whether processes are not to be waited for.
        running: Whether the run is under way.
    """

    asked: int = 0
    hurry: bool = False
    running: bool = False


@contextmanager
def watch_signals() -> Iterator[Interrupts]:
    """Count SIGINT and SIGTERM while the run is under way, instead of ending."""
    found = Interrupts()

    def note(number: int, frame: FrameType | None) -> None:
        found.asked += found.running
        if not found.running or found.asked > 2:
            found.hurry = True
            raise KeyboardInterrupt

    former = {}
    with suppress(ValueError):  # not the main thread: whoever has that decides
        for number in (signal.SIGINT, signal.SIGTERM):
            former[number] = signal.signal(number, note)
    try:
        yield found
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def face_file(options: ReconstructOptions, plan: Path) -> Path | None:
    """File of the morphable model, where a product needs it."""
    if not options.keeps_photos:
        return None
    from face3d_trt.reconstruct.products import face_path

    return face_path(plan)


def facts_of_run(options: ReconstructOptions, plan: Path, on_cpu: bool) -> dict[str, Any]:
    """What decides the results."""
    from face3d_trt import __version__

    return {
        "version": __version__,
        "sources": [str(PurePath(source)) for source in options.sources],  # photos/ is photos
        "plan": plan.name,
        "plan_sha256": sha256_file(plan),
        "engine": "cpu" if on_cpu else "gpu",
        "decode": options.decode,
        "detector": options.detector_name,
        "landmarks_sha256": sha256_file(options.landmarks) if options.landmarks else None,
        "faces": options.faces,
        "save": sorted(options.products.save),
        "format": options.products.format,
        "texture_size": options.products.texture_size,
        "texture_format": options.products.texture_format,
    }


def crop_sizes(options: ReconstructOptions, ready: Ready) -> Sizes:
    """Sizes of pictures that are crops already, beside 224×224."""
    return ready.sizes if options.crops_only else ()
