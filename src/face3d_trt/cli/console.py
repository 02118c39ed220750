"""What the commands show: stages, warnings, progress, errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

T = TypeVar("T")


class RichReporter:
    """Stages and warnings go to stderr, so that stdout carries results only."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console: Console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task: tuple[str, TaskID] | None = None

    def stage(self, text: str) -> None:
        """Print one line."""
        self._close()
        self.console.print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print one line in yellow."""
        self._close()
        self.console.print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)

    def track(self, items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
        """Hand on `items` under a progress bar."""
        from rich.progress import track

        self._close()
        yield from track(items, description=text, total=total, console=self.console, transient=True)

    def progress(self, text: str, done: int, total: int) -> None:
        """Move the bar of `text`; it goes when the work is complete."""
        from rich.progress import Progress

        if self._bar is None:
            self._bar = Progress(console=self.console, transient=True)
            self._bar.start()
        if self._task is None or self._task[0] != text:
            if self._task is not None:
                self._bar.remove_task(self._task[1])
            self._task = (text, self._bar.add_task(text, total=total))
        self._bar.update(self._task[1], completed=done, total=total)
        if done >= total:
            self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._task = None, None


def show_error(message: str) -> None:
    """Print an error to stderr."""
    from rich.console import Console

    text = f"error: {message}"
    if sys.stderr.isatty():
        Console(stderr=True, highlight=False).print(text, style="red", markup=False, soft_wrap=True)
    else:
        print(text, file=sys.stderr)
