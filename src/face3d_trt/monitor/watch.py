"""Looking again and again, until nobody wants to know any more."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.monitor.gpus import Gpus
from face3d_trt.monitor.metrics import LOCALHOST, Metrics
from face3d_trt.monitor.state import LocalSource, Source, State, UrlSource

LEAST_S = 0.1


@dataclass(frozen=True)
class WatchOptions:
    """What `monitor` looks at.

    Attributes:
        url: Of a running process; None: this machine's GPUs.
        devices: None: all.
        interval_s: Between two looks.
        port: To answer Prometheus on meanwhile; None: not.
        address: That `port` is on.

    Raises:
        UsageError: They contradict each other.
    """

    url: str | None = None
    devices: tuple[int, ...] | None = None
    interval_s: float = 1.0
    port: int | None = None
    address: str = LOCALHOST

    def __post_init__(self) -> None:
        if self.interval_s < LEAST_S:
            raise UsageError(f"{self.interval_s:g} s between two looks is too short", allowed=f"{LEAST_S:g}s and more")
        if self.url is not None and self.port is not None:
            raise UsageError(
                "--url reads an endpoint and --port opens one for this machine's GPUs: not both at once",
                allowed="one of them; Prometheus can read the other process itself",
            )


@contextlib.contextmanager
def opened(options: WatchOptions) -> Iterator[tuple[Source, str | None]]:
    """Where states come from, and the URL of the endpoint that is open meanwhile, if any.

    Raises:
        MissingError: There is no GPU and no `url`, or a package is missing.
        UsageError: A GPU that is not there, a port that is taken, a URL that is none.
    """
    if options.url is not None:
        yield UrlSource(options.url, options.devices), None
        return
    with contextlib.ExitStack() as stack:
        try:
            gpus = stack.enter_context(Gpus(options.devices))
        except MissingError as error:
            error.allowed = error.allowed or "a GPU here; or --url http://HOST:PORT of a process that has an endpoint"
            raise
        url = None
        if options.port is not None:
            metrics = stack.enter_context(contextlib.closing(Metrics(options.devices)))
            url = stack.enter_context(metrics.endpoint(options.port, options.address))
        yield LocalSource(gpus), url


def states(source: Source, interval_s: float) -> Iterator[State]:
    """One state now, and one every `interval_s` seconds, for ever."""
    due = time.monotonic()
    while True:
        yield source.read()
        due = max(due + interval_s, time.monotonic())  # never two at once after a hold-up
        time.sleep(max(0.0, due - time.monotonic()))
