"""What a running pipeline has done and what waits in it: plain numbers, which any thread may add to."""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

BATCHES = tuple(float(1 << power) for power in range(11))  # 1 to 1024
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass
class Histogram:
    """Values by size.

    Attributes:
        bounds: Upper ends of the classes, each included; above the last one is one class more.
        counts: Values of each class.
        total: Their sum.
    """

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        """One that later values do not change."""
        return Histogram(self.bounds, list(self.counts), self.total)


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline.

    Attributes:
        queue: How many images wait for it; None where it has no queue.
        capacity: How many may wait; None: any number.
        calls: Pieces of work done, an image or a batch each.
        seconds: That they took, those of all workers together.
    """

    queue: int | None = None
    capacity: int | None = None
    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Progress:
    """A pipeline at one moment.

    Attributes:
        stages: By name, in the order of the way through them.
        images: How many ended how: `{"written": 90, "no face": 2}`.
        batches: That the GPUs were given.
        batched: Images in them.
        batch_limits: The largest batch that a GPU is given now, by its number, where a limit holds it down.
    """

    stages: dict[str, Stage] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    batched: int = 0
    batch_limits: dict[int, int] = field(default_factory=dict)


class Counts:
    """Counts what happens in a pipeline. Every method may be called from any thread.

    Queues are asked for their length only when somebody wants to know.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images: Counter[str] = Counter()
        self._batches = Histogram(BATCHES)
        self._stages: dict[str, Histogram] = {}
        self._queues: dict[str, tuple[Callable[[], int], int | None]] = {}
        self._limits: dict[int, Callable[[], int | None]] = {}

    def queue(self, stage: str, length: Callable[[], int], capacity: int | None = None) -> None:
        """Make the queue before a stage known, in the order of the stages; `length` is `queue.qsize`."""
        with self._lock:
            self._queues[stage] = (length, capacity)
            self._stages.setdefault(stage, Histogram(SECONDS))

    def image(self, outcome: str, images: int = 1) -> None:
        """Count images that ended as `outcome` says: few different words, no reasons or names."""
        with self._lock:
            self._images[outcome] += images

    def batch(self, images: int) -> None:
        """Count a batch given to a GPU."""
        with self._lock:
            self._batches.add(images)

    def took(self, stage: str, seconds: float) -> None:
        """Count a piece of work of a stage."""
        with self._lock:
            self._stages.setdefault(stage, Histogram(SECONDS)).add(seconds)

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count what happens inside as a piece of work of a stage, also where it fails."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.took(stage, time.perf_counter() - begun)

    def batch_limit(self, device: int, allowed: Callable[[], int | None]) -> None:
        """Make known what holds a GPU's batches down: `lambda: governor.allowed`."""
        with self._lock:
            self._limits[device] = allowed

    def histograms(self) -> tuple[Histogram, dict[str, Histogram]]:
        """Sizes of the batches, and seconds by stage."""
        with self._lock:
            return self._batches.copy(), {stage: seconds.copy() for stage, seconds in self._stages.items()}

    def progress(self) -> Progress:
        """Everything so far."""
        batches, stages = self.histograms()
        with self._lock:
            images, queues, limits = dict(self._images), dict(self._queues), dict(self._limits)
        found = {}
        for stage, seconds in stages.items():
            length, capacity = queues.get(stage, (None, None))
            found[stage] = Stage(_asked(length), capacity, sum(seconds.counts), seconds.total)
        return Progress(
            stages=found,
            images=images,
            batches=sum(batches.counts),
            batched=round(batches.total),
            batch_limits={device: limit for device, ask in limits.items() if (limit := ask()) is not None},
        )


def _asked(length: Callable[[], int] | None) -> int | None:
    if length is None:
        return None
    try:
        return length()
    except (OSError, ValueError, NotImplementedError):  # a queue that was closed; a system without qsize
        return None
