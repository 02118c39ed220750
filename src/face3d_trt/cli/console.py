"""What the commands show: stages, warnings, progress, errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

T = TypeVar("T")
TABLE_WIDTH = 88

_BARS: list[Progress] = []  # those that are up


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
        if total is None:
            total = len(items) if isinstance(items, Sized) else 0
        for done, item in enumerate(items):
            self.progress(text, done, max(total, done + 1))
            yield item
        self._close()

    def progress(self, text: str, done: int, total: int) -> None:
        """Move the bar of `text`; it goes when the work is complete. A file or a pipe gets none."""
        from rich.progress import Progress

        if not self.console.is_terminal:
            return
        if self._bar is None:
            self._bar = Progress(console=self.console, transient=True)
            self._bar.start()
            _BARS.append(self._bar)
        if self._task is None or self._task[0] != text:
            if self._task is not None:
                self._bar.remove_task(self._task[1])
            self._task = (text, self._bar.add_task(text, total=total))
        self._bar.update(self._task[1], completed=done, total=total)
        if done >= total:
            self._close()

    def _close(self) -> None:
        close_bars()
        self._bar, self._task = None, None


def close_bars() -> None:
    """Take down what still moves, so that the terminal has its cursor again; also after an error."""
    while _BARS:
        _BARS.pop().stop()


def results(width: int = TABLE_WIDTH) -> Console:
    """The console for tables on stdout: never narrower than the `width` they need, so that no figure is cut."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.width >= width else Console(highlight=False, width=width)


def show_error(message: str) -> None:
    """Print an error to stderr."""
    from rich.console import Console

    close_bars()
    text = f"error: {message}"
    if sys.stderr.isatty():
        Console(stderr=True, highlight=False).print(text, style="red", markup=False, soft_wrap=True)
    else:
        print(text, file=sys.stderr)
