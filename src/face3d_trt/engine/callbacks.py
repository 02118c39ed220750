"""What TensorRT calls while it works: logger, progress monitor, profiler; their bases come from its own module."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, cast

from face3d_trt.engine.messages import Messages

if TYPE_CHECKING:
    from face3d_trt.engine import api
    from face3d_trt.engine.phases import Phases

_ONE_AT_A_TIME = threading.RLock()


class _Thread(threading.local):
    messages: Messages | None = None  # where this thread wants to hear TensorRT; None: with everybody else


_thread = _Thread()


@contextlib.contextmanager
def speaking_to(trt: api.Module, messages: Messages) -> Iterator[Any]:
    """The process's logger for `trt`, which meanwhile writes into `messages`.

    TensorRT keeps the first logger of the process for everything and builds in threads of its own, so nothing tells
    whose message it is: one caller speaks at a time, and others wait.
    """
    with _ONE_AT_A_TIME:
        logger = _logger(cast("Hashable", trt))
        before, logger.messages = logger.messages, messages
        own, _thread.messages = _thread.messages, None
        try:
            yield logger
        finally:
            logger.messages = before
            _thread.messages = own


def listen(messages: Messages) -> None:
    """From now on put what TensorRT says in this thread into `messages`, emptied first.

    For the calls of a running engine: they speak in the thread that calls, so no lock is needed, and hundreds of
    thousands of calls can afford it.
    """
    messages.clear()
    _thread.messages = messages


@functools.lru_cache
def _logger(trt: Any) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages = Messages()

        def log(self, severity: Any, text: str) -> None:
            messages = self.messages if _thread.messages is None else _thread.messages
            if severity <= trt.ILogger.ERROR:
                messages.add("error", text)
            elif severity == trt.ILogger.WARNING:
                messages.add("warning", text)

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


def layer_times(trt: Any) -> tuple[dict[str, list[float]], Any]:
    """A profiler, and what it will have heard: layer's name to the milliseconds of each run."""
    times: dict[str, list[float]] = {}

    class Profiler(trt.IProfiler):  # type: ignore[misc]  # likewise
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times.setdefault(layer_name, []).append(ms)

    return times, Profiler()
