"""Processes that may crash, hang or run out of memory without taking the run with them."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

_GRACE_S = 5.0  # for a process that has said all


class Ended(Exception):  # noqa: N818  the caller decides whether it is an error
    """The process ended without another word; says how: "ended by signal 9 (SIGKILL)"."""


class TimedOut(Exception):  # noqa: N818
    """It said nothing for as long as it was given."""


class Child:
    """A new interpreter that runs `target(*arguments, connection)`; ended with all that it started on leaving.

    It leads a session of its own: Ctrl-C reaches this process alone. Not by multiprocessing, whose resource tracker
    would be shared with it, and complains about what a process that was ended has left.

    Args:
        target: A function of a module.
        arguments: What can be pickled.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._connection, theirs = Pipe(duplex=False)
        with theirs:
            descriptor = theirs.fileno()
            program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import be_child; be_child({descriptor})"
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                pass_fds=(descriptor,),
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:  # it has ended: `receive` says how
            pickle.dump((target, arguments), stdin)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(0.0 if error is not None else _GRACE_S)

    def receive(self, seconds: float) -> Any:
        """The next message.

        Args:
            seconds: To wait.

        Raises:
            TimedOut: None came.
            Ended: None will come.
        """
        if not self._connection.poll(max(0.0, seconds)):
            raise TimedOut
        try:
            return self._connection.recv()
        except (EOFError, ConnectionError):
            raise Ended(how_it_ended(self._wait(_GRACE_S))) from None

    def end(self, grace_s: float = 0.0) -> None:
        """Give it some time to end by itself, then end it and what it started."""
        if self._connection.closed:
            return
        self._wait(grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()

    def _wait(self, seconds: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None


def be_child(descriptor: int) -> None:
    """The other end of `Child`."""
    target, arguments = pickle.load(sys.stdin.buffer)
    target(*arguments, Connection(descriptor, readable=False))


def how_it_ended(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "the process closed its end"
    if code >= 0:
        return f"the process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process was ended by signal {-code}"


def answer_of(seconds: float, target: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own.

    Args:
        seconds: It may take.
        target: Of a module; what it returns or raises can be pickled.
        arguments: Likewise.

    Raises:
        TimedOut: It took longer.
        Ended: The process ended without an answer.
    """
    with Child(_answer, target, arguments) as child:
        answer, error = child.receive(seconds)
    if error is not None:
        raise error
    return answer


def _answer(target: Callable[..., Any], arguments: tuple[Any, ...], connection: Connection) -> None:
    os.dup2(2, 1)  # stdout has the parent's results alone
    try:
        answer: tuple[Any, Exception | None] = (target(*arguments), None)
    except Exception as error:
        answer = (None, error)
    connection.send(answer)


def until(deadline: float | None) -> float:
    """Seconds that are left; infinite where there is no deadline.

    Args:
        deadline: Of time.monotonic.
    """
    return float("inf") if deadline is None else deadline - time.monotonic()
