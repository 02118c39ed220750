"""Processes that may crash, hang or run out of memory without taking the run with them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_GRACE_S = 5.0  # for a process that has said all


class Ended(Exception):  # noqa: N818  the caller decides whether it is an error
    """The process ended without another word; says how: "ended by signal 9 (SIGKILL)"."""


class TimedOut(Exception):  # noqa: N818
    """It said nothing for as long as it was given."""


class Child:
    """A new interpreter that runs `target(*arguments, connection)`; ended with all that it started on leaving.

    Args:
        target: A function of a module.
        arguments: What can be pickled.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection: Connection
        self._connection, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=target, args=(*arguments, theirs))
        with theirs:
            self._process.start()

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
            self._process.join(_GRACE_S)
            raise Ended(how_it_ended(self._process.exitcode)) from None

    def end(self, grace_s: float = 0.0) -> None:
        """Give it some time to end by itself, then end it and what it started."""
        if self._process.pid is None:
            return
        self._process.join(grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it may not have come as far as to make one
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._connection.close()


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
    os.setsid()
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
