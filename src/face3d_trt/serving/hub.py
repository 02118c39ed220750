"""What a front works with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from face3d_trt.serving.problems import SOON_S, Problem

if TYPE_CHECKING:
    from starlette.requests import Request

    from face3d_trt.serving.gate import Gate
    from face3d_trt.serving.links import Engines
    from face3d_trt.serving.metrics import Exposition
    from face3d_trt.serving.options import ServeOptions
    from face3d_trt.serving.studio import Studio


class Hub:
    """The engines, the processes that read photos, and the limits.

    Args:
        options: Of the server.
        engines: With the room for crops.
        studio: For photos.
        exposition: Of the metrics.
    """

    gate: Gate

    def __init__(self, options: ServeOptions, engines: Engines, studio: Studio, exposition: Exposition) -> None:
        self.options, self.engines, self.studio, self.exposition = options, engines, studio, exposition

    def deadline(self, request: Request) -> float:
        """Of a request, in seconds of the machine's monotonic clock."""
        return float(request.scope["state"]["begun"]) + self.options.deadline_s

    def body_seconds(self, deadline: float) -> float:
        """That a body may take now."""
        return max(0.0, min(self.options.body_s, deadline - time.monotonic()))

    def unready(self) -> Problem | None:
        """Why the server should get no requests."""
        if self.gate.draining:
            return Problem(503, "the server is ending", retry_s=SOON_S)
        if not self.engines.ready:
            return self.engines.absent()
        if not self.studio.ready:
            return Problem(503, "the processes that read photos are starting", retry_s=SOON_S)
        return None
