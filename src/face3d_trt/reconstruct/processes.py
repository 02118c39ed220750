"""Child processes that cannot outlive their parent, and that Ctrl-C leaves to the parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIGNALS = {signal.SIGINT, signal.SIGTERM}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
QUIET = {"OPENCV_LOG_LEVEL": "SILENT", "OPENCV_FFMPEG_LOGLEVEL": "-8"}  # what is wrong stands in the list of results


class Child:
    """A process that is told things and answers, one message at a time.

    Args:
        main: Runs there; called with its end of the connection and `arguments`.
        arguments: Picklable.
        name: For lists of processes.
        environment: Variables that it gets beside this process's.
    """

    def __init__(
        self, main: Callable[..., None], arguments: tuple[Any, ...], name: str, environment: Mapping[str, str]
    ) -> None:
        context = multiprocessing.get_context("spawn")  # neither CUDA nor ONNX Runtime survives a fork
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_child, args=(main, theirs, os.getpid(), arguments), name=name, daemon=True
        )
        with _held_back(), _variables(environment):
            self.process.start()
        theirs.close()

    def tell(self, message: object) -> bool:
        """Send; False: it is gone."""
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def ending(self) -> str:
        """How it died, in words."""
        self.process.join(timeout=5)
        code = self.process.exitcode
        if code is not None and code < 0:
            with suppress(ValueError):
                return signal.Signals(-code).name + (" (out of memory?)" if -code == signal.SIGKILL else "")
        return f"exit code {code}"

    def end(self, patience_s: float) -> None:
        """Ask it to end, and make it."""
        self.tell(None)
        self.process.join(patience_s)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()
        self.process.close()


def _child(main: Callable[..., None], connection: Connection, parent: int, arguments: tuple[Any, ...]) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    with suppress(OSError, AttributeError):  # another C library: the end of the connection will do
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        main(connection, *arguments)


@contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C waits, and does not reach a child that has not yet come to ignoring it: masks are inherited."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    former = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
