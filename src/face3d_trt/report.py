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


SILENT: Reporter = Silent()
