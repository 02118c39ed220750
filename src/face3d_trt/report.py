"""How long work tells what it is doing, without knowing whether a terminal listens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Reporter(Protocol):
    """What the command line passes into library functions."""

    def stage(self, text: str) -> None:
        """Say which step begins, or that it was reused."""

    def warn(self, text: str) -> None:
        """Say something that the user should not miss."""

    def track(self, items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
        """Hand on `items`, showing progress."""

    def progress(self, text: str, done: int, total: int) -> None:
        """Show that `done` of `total` steps of `text` are finished; called from any thread."""


class Silent:
    """The reporter of library calls: says nothing."""

    def stage(self, text: str) -> None:
        """Say nothing."""

    def warn(self, text: str) -> None:
        """Say nothing."""

    def track(self, items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
        """Hand on `items`."""
        return iter(items)

    def progress(self, text: str, done: int, total: int) -> None:
        """Say nothing."""


class Once:
    """Hands everything on to another reporter, but each warning once: for work that repeats a step.

    Args:
        report: The other one.
    """

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._said: set[str] = set()

    def stage(self, text: str) -> None:
        """Hand it on."""
        self._report.stage(text)

    def warn(self, text: str) -> None:
        """Hand it on unless it was said."""
        if text not in self._said:
            self._said.add(text)
            self._report.warn(text)

    def track(self, items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
        """Hand on `items`."""
        return self._report.track(items, text, total)

    def progress(self, text: str, done: int, total: int) -> None:
        """Hand it on."""
        self._report.progress(text, done, total)


SILENT: Reporter = Silent()
