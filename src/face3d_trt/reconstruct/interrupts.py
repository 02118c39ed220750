"""Ctrl-C and SIGTERM as a wish: end what is on its way, then stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType


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
def interrupts() -> Iterator[Interrupts]:
    """Take signals meanwhile, where this is the main thread."""
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
