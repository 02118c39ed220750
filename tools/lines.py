"""A reporter for logs: no bar that moves, but a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
EVERY_S = 30.0


class Lines:
    """Prints stages and warnings, and of progress a line every half minute."""

    def __init__(self) -> None:
        self._last = 0.0

    def stage(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    warn = stage

    def track(self, items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
        """Hand on `items`."""
        return iter(items)

    def progress(self, text: str, done: int, total: int) -> None:
        """Print at most one line in half a minute."""
        if time.monotonic() - self._last > EVERY_S:
            self._last = time.monotonic()
            print(f"{done:5d} of {total}  {text}", flush=True)
