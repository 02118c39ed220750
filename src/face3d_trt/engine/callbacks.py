"""What TensorRT calls while it works: logger and progress monitor, whose base classes come from its own module."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from face3d_trt.engine.messages import Messages

if TYPE_CHECKING:
    from face3d_trt.engine.phases import Phases

_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def speaking_to(trt: Any, messages: Messages) -> Iterator[Any]:
    """The process's logger for `trt`, which meanwhile writes into `messages`.

    TensorRT keeps the first logger of the process for everything and calls it from threads of its own, so nothing tells
    whose message it is: one caller speaks at a time, and others wait.
    """
    with _ONE_AT_A_TIME:
        logger = _logger(trt)
        before, logger.messages = logger.messages, messages
        try:
            yield logger
        finally:
            logger.messages = before


@functools.lru_cache
def _logger(trt: Any) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages = Messages()

        def log(self, severity: Any, text: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.messages.add("error", text)
            elif severity == trt.ILogger.WARNING:
                self.messages.add("warning", text)

    return Logger()


def monitor(trt: Any, phases: Phases, cancelled: threading.Event) -> Any:
    """Tells `phases` how far a build is, and stops it once `cancelled` is set."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # likewise
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, name: str, parent: str | None, steps: int) -> None:
            phases.start(name, parent, steps)

        def step_complete(self, name: str, step: int) -> bool:
            phases.step(name, step)
            return not cancelled.is_set()

        def phase_finish(self, name: str) -> None:
            phases.finish(name)

    return Monitor()
