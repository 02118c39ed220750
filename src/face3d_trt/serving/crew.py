"""The processes of a server: started, watched, and replaced when they die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from face3d_trt.reconstruct.messages import Broken, Ready
from face3d_trt.reconstruct.processes import Child

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_SETTLED_S = 30.0  # a process that has lived so long is replaced at once when it dies
_FIRST_S, _LONGEST_S = 0.2, 10.0  # that a replacement waits otherwise, and at most


class Post:
    """One place in a server, and the process that has it.

        post = Post("engine 0", engines.run, lambda: (replica,), environment, tell=supervisor.heard)
        post.start()

    Args:
        name: For messages.
        main: The process's main function.
        arguments: Made anew for each process.
        environment: Variables.
        heard: Called with this post and what its process says: Ready, Broken, or None.
        died: Called with this post, how its process died, and the number it had.
    """

    def __init__(
        self,
        name: str,
        main: Callable[..., None],
        arguments: Callable[[], tuple[Any, ...]],
        environment: Mapping[str, str],
        *,
        heard: Callable[[Post, Ready | Broken | None], None],
        died: Callable[[Post, str, int], None],
    ) -> None:
        self.name, self._main, self._arguments, self._environment = name, main, arguments, environment
        self._heard, self._died = heard, died
        self.child: Child | None = None
        self.was_ready = False
        self._begun = self._pause = 0.0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start a process. Takes as long as the interpreter takes to begin, some ms."""
        self._begun = time.monotonic()
        self.child = Child(self._main, self._arguments(), f"face3d-trt {self.name}", self._environment)
        loop = asyncio.get_running_loop()
        loop.add_reader(self.child.connection.fileno(), self._listen, self.child.connection)
        loop.add_reader(self.child.process.sentinel, self._notice)

    def stop_watching(self) -> None:
        """Whatever happens to the process, it is not replaced."""
        if self._next is not None:
            self._next.cancel()
        self._forget()

    def end(self, patience_s: float) -> None:
        """Ask the process to end, and make it."""
        self.stop_watching()
        child, self.child = self.child, None
        if child is not None:
            child.end(patience_s)

    @property
    def alive(self) -> bool:
        """Whether there is a process now."""
        return self.child is not None and self.child.process.is_alive()

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return None if self.child is None else self.child.process.pid

    def _listen(self, connection: Connection) -> None:
        try:
            while connection.poll():
                said = connection.recv()
                self.was_ready |= not isinstance(said, Broken)
                self._heard(self, said)
        except (EOFError, OSError):
            with suppress(OSError, ValueError):
                asyncio.get_running_loop().remove_reader(connection.fileno())

    def _notice(self) -> None:
        """The process is gone."""
        child = self.child
        assert child is not None
        self._listen(child.connection)  # its last words
        if self.child is not child:
            return
        self._forget()
        pid, how = child.process.pid or 0, child.ending()
        child.connection.close()
        child.process.close()
        self.child = None
        self._died(self, how, pid)
        lived = time.monotonic() - self._begun
        self._pause = 0.0 if lived > _SETTLED_S else min(max(2 * self._pause, _FIRST_S), _LONGEST_S)
        self._next = asyncio.get_running_loop().call_later(self._pause, self.start)

    def _forget(self) -> None:
        loop = asyncio.get_running_loop()
        if self.child is not None:
            with suppress(OSError, ValueError):
                loop.remove_reader(self.child.connection.fileno())
            with suppress(OSError, ValueError):
                loop.remove_reader(self.child.process.sentinel)


def quiet_environment(cores: int) -> dict[str, str]:
    """Libraries that bring threads of their own are told how many."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(max(1, cores)))
