"""Requests that wait in an engine's process, put together to batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """Takes requests from many threads, gives batches to some.

        queue = BatchQueue(max_rows=64, max_wait_s=0.005)
        queue.put(request, rows=1)
        while batch := queue.take():
            ...
            queue.done()

    A batch is given as soon as it is full, or its oldest request has waited long enough, or nothing else is running:
    an idle engine waits for nobody, and while it is busy batches grow by themselves. A request is never cut: one that
    has more rows than a batch goes alone.

    Args:
        max_rows: Of a batch.
        max_wait_s: That a request waits for others while a batch runs.
    """

    def __init__(self, max_rows: int, max_wait_s: float) -> None:
        self._max_rows, self._max_wait_s = max_rows, max_wait_s
        self._changed = threading.Condition()
        self._waiting: deque[tuple[T, int, float]] = deque()  # with its rows, and since when
        self._rows = 0
        self._running = 0
        self._closed = False

    def put(self, item: T, rows: int) -> None:
        """Have a request wait."""
        with self._changed:
            self._waiting.append((item, rows, time.monotonic()))
            self._rows += rows
            self._changed.notify()

    def take(self) -> list[T] | None:
        """The next batch, in the order in which its requests came; None: closed, and nothing waits any more.

        It counts as running until `done`.
        """
        with self._changed:
            while True:
                patience = self._patience()
                if patience is not None and patience <= 0:
                    self._running += 1
                    return self._cut()
                if self._closed and not self._waiting:
                    return None
                self._changed.wait(patience)

    def done(self) -> None:
        """A batch that `take` gave runs no more."""
        with self._changed:
            self._running -= 1
            self._changed.notify()

    def close(self) -> None:
        """Give what waits, then None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Rows that wait."""
        return self._rows

    def _patience(self) -> float | None:
        """Seconds until a batch is due; None: nothing waits."""
        if not self._waiting:
            return None
        if self._rows >= self._max_rows or not self._running or self._closed:
            return 0.0
        return self._waiting[0][2] + self._max_wait_s - time.monotonic()

    def _cut(self) -> list[T]:
        batch: list[T] = []
        rows = 0
        while self._waiting and (not batch or rows + self._waiting[0][1] <= self._max_rows):
            item, more, _ = self._waiting.popleft()
            batch.append(item)
            rows += more
        self._rows -= rows
        if self._waiting:
            self._changed.notify()  # another thread may have to look
        return batch
