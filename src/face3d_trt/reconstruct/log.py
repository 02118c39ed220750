"""A run's events as JSON lines, for machines that read along."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from face3d_trt.reconstruct.stats import Status

_EVERY_S = 5.0


class JsonLog:
    """A Reporter, a watch and a tell in one: everything becomes a line `{"time": ..., "event": ..., ...}`.

    Args:
        write: Takes a line without its end.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._last = 0.0

    def stage(self, text: str) -> None:
        """A step begins."""
        self.tell("stage", {"text": text})

    def warn(self, text: str) -> None:
        """Something that should not be missed."""
        self.tell("warning", {"text": text})

    def track(self, items: Any, text: str, total: int | None = None) -> Any:
        """Hand on `items`."""
        return iter(items)

    def progress(self, text: str, done: int, total: int) -> None:
        """Not a line for each step."""

    def watch(self, status: Status) -> None:
        """A line every few seconds."""
        now = time.monotonic()
        if now - self._last >= _EVERY_S:
            self._last = now
            self.tell("progress", facts_of(status))

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        """One event."""
        self._write(json.dumps({"time": round(time.time(), 3), "event": event, **facts}))


def facts_of(status: Status) -> dict[str, Any]:
    """A Status as JSON values."""
    left = status.left_s
    return {
        "counts": status.counts,
        "total": status.total,
        "images_per_s": round(status.rate, 2),
        "mean_images_per_s": round(status.mean_rate, 2),
        "seconds": round(status.seconds, 3),
        "left_s": None if left is None else round(left, 1),
        "queues": status.queues,
        "stage_s": {stage: round(seconds, 3) for stage, seconds in status.stage_s.items()},
        "busy": {name: round(share, 4) for name, share in status.busy.items()},
        "limit": status.limit,
        "batch": status.batch,
        "gpus": status.gpus,
    }
