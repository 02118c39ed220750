"""Crops that wait for an engine, put together to batches: up to size, or up to a deadline."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from face3d_trt.reconstruct.messages import Batch, Shape

DEADLINE_S = 0.05  # that a crop waits for company; pictures with texture take several times as long


@dataclass(frozen=True)
class _Crops:
    """Crops `start` to `stop` of a bay, waiting since `since` (seconds of a monotonic clock)."""

    bay: int
    start: int
    stop: int
    since: float


class Batcher:
    """Collects crops, those of one size together, in the order in which they come.

    Args:
        size: The most rows of a batch.
        deadline_s: That a crop waits at most for others.
    """

    def __init__(self, size: int, deadline_s: float = DEADLINE_S) -> None:
        self.size, self._deadline_s = size, deadline_s
        self._waiting: dict[Shape, deque[_Crops]] = {}
        self._rows: dict[Shape, int] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return sum(self._rows.values())

    def add(self, bay: int, start: int, stop: int, shape: Shape, now: float, *, first: bool = False) -> None:
        """Crops of a bay.

        Args:
            bay: Where they are.
            start: The first.
            stop: Behind the last.
            shape: Height and width.
            now: Seconds.
            first: Before all others: they were in a batch that failed.
        """
        queue = self._waiting.setdefault(shape, deque())
        (queue.appendleft if first else queue.append)(_Crops(bay, start, stop, now))
        self._rows[shape] = self._rows.get(shape, 0) + stop - start

    def take(self, now: float, *, flush: bool = False) -> Batch | None:
        """The next batch: a full one; or the rest of a size that has waited long enough, or has nothing to wait for.

        Args:
            now: Seconds.
            flush: Nothing else will come soon.
        """
        for shape, queue in self._waiting.items():
            if queue and self._rows[shape] >= self.size:
                return self._cut(shape)
        late = [shape for shape, queue in self._waiting.items() if queue and self._is_late(queue[0], now, flush)]
        return self._cut(min(late, key=lambda shape: self._waiting[shape][0].since)) if late else None

    def due(self) -> float | None:
        """When the next deadline is; None: nothing waits."""
        firsts = [queue[0].since for queue in self._waiting.values() if queue]
        return min(firsts) + self._deadline_s if firsts else None

    def _is_late(self, crops: _Crops, now: float, flush: bool) -> bool:
        return flush or now - crops.since >= self._deadline_s

    def _cut(self, shape: Shape) -> Batch:
        queue, parts, rows = self._waiting[shape], list[tuple[int, int, int]](), 0
        while queue and rows < self.size:
            crops = queue.popleft()
            stop = min(crops.stop, crops.start + self.size - rows)
            parts.append((crops.bay, crops.start, stop))
            rows += stop - crops.start
            if stop < crops.stop:
                queue.appendleft(replace(crops, start=stop))
        self._rows[shape] -= rows
        self._tickets += 1
        return Batch(self._tickets, tuple(parts), shape, rows)
