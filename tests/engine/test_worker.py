"""Work in a thread, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from face3d_trt.engine.worker import run_cancellable
from face3d_trt.errors import BuildError


def test_the_result_and_the_error_come_through() -> None:
    assert run_cancellable(lambda cancelled: threading.current_thread().name, patience_s=1) == "face3d-trt build"

    def fail(cancelled: threading.Event) -> None:
        raise BuildError("refused")

    with pytest.raises(BuildError, match="refused"):
        run_cancellable(fail, patience_s=1)


def test_ctrl_c_tells_the_work_and_waits_for_it() -> None:
    noticed = threading.Event()

    def work(cancelled: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert cancelled.wait(20)
        time.sleep(0.2)
        noticed.set()

    with pytest.raises(KeyboardInterrupt):
        run_cancellable(work, patience_s=20)
    assert noticed.is_set()


def test_ctrl_c_does_not_wait_for_deaf_work() -> None:
    release = threading.Event()

    def deaf(cancelled: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(20)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_cancellable(deaf, patience_s=0)
    assert time.monotonic() - begun < 5
    release.set()
