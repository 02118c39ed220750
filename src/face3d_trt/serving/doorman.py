"""Takes connections and hands them to the fronts in turn, so that each has as many as the others."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

Front = TypeVar("Front")

TAKE, DRAIN = b"t", b"d"  # what is said to a front: take this connection; the server ends soon. The end: it hangs up
BACKLOG = 2048
_AT_ONCE = 64  # connections that are taken before something else gets its turn
_PAUSE_S = 0.05  # until fronts are tried again that take no more connections


class Doorman(Generic[Front]):
    """The door of a server.

    Args:
        listener: Not blocking.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._fronts: dict[Front, tuple[socket.socket, socket.socket]] = {}  # this process's end, and the front's
        self._held: deque[socket.socket] = deque()  # accepted, and not handed on

    def channel(self, front: Front) -> socket.socket:
        """A new front's end of its channel. This process keeps it open too: what a front leaves there is taken back."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        theirs.setblocking(False)  # for both; the front sets it anyway
        self._fronts[front] = ours, theirs
        return theirs

    def open(self) -> None:
        """Begin, or go on, to take connections."""
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)
            self._accept()

    def gone(self, front: Front) -> None:
        """A front has died: others get what it was handed and has not taken."""
        ours, theirs = self._fronts.pop(front, (None, None))
        if ours is None or theirs is None:
            return
        ours.close()
        with suppress(BlockingIOError):
            while files := socket.recv_fds(theirs, 1, 1)[1]:
                self._held.append(socket.socket(fileno=files[0]))
        theirs.close()
        if self._held:
            self._accept()

    def announce_the_end(self) -> None:
        """Tell the fronts that the server ends soon."""
        for ours, _ in self._fronts.values():
            with suppress(OSError):
                ours.send(DRAIN)

    def close(self) -> None:
        """Take who has connected already, nobody else, and let the fronts finish."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        for _ in range(BACKLOG // _AT_ONCE):
            self._accept()
        self._listener.close()
        for ours, theirs in self._fronts.values():
            ours.close()
            theirs.close()
        self._fronts.clear()

    def _accept(self) -> None:
        """Hand on who waits; where no front takes another one now, they wait on in the kernel's queue."""
        for _ in range(_AT_ONCE):
            if not self._held:
                try:
                    self._held.append(self._listener.accept()[0])
                except OSError:  # nobody there, or no descriptor left
                    return
            if not self._hand_on(self._held[0]):
                loop = asyncio.get_running_loop()
                if loop.remove_reader(self._listener.fileno()):
                    loop.call_later(_PAUSE_S, self.open)
                return
            self._held.popleft().close()

    def _hand_on(self, client: socket.socket) -> bool:
        """To the next front that takes it."""
        for front in list(self._fronts):
            ours, theirs = self._fronts.pop(front)
            self._fronts[front] = ours, theirs  # the last one now
            with suppress(OSError):  # its queue is full
                socket.send_fds(ours, [TAKE], [client.fileno()])
                return True
        return False
