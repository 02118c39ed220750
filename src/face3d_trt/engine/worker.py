"""Long native work in a thread of its own, so that Ctrl-C reaches Python at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_POLL_S = 0.1  # waiting without a timeout does not let a signal through on every platform


class _Worker(threading.Thread, Generic[T]):
    def __init__(self, work: Callable[[threading.Event], T], cancelled: threading.Event) -> None:
        super().__init__(name="face3d-trt build", daemon=True)
        self.work, self.cancelled = work, cancelled
        self.finished = threading.Event()  # join() that Ctrl-C interrupts takes a running thread for an ended one
        self.result: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result.append(self.work(self.cancelled))
        except BaseException as error:  # handed on to the caller's thread
            self.error = error
        finally:
            self.finished.set()


def run_cancellable(work: Callable[[threading.Event], T], *, patience_s: float) -> T:
    """Run `work` in a thread; on Ctrl-C tell it through the event, wait, and raise KeyboardInterrupt.

    Args:
        work: Looks at the event it is given, and returns or raises soon after the event is set.
        patience_s: How long Ctrl-C waits for `work` to notice; native code that takes no notice is left behind.
    """
    cancelled = threading.Event()
    worker = _Worker(work, cancelled)
    try:
        worker.start()
        while not worker.finished.wait(_POLL_S):
            pass
    except KeyboardInterrupt:
        cancelled.set()
        worker.finished.wait(patience_s)
        raise
    if worker.error is not None:
        raise worker.error
    return worker.result[0]
