"""A front's side of the engines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.serving.problems import SOON_S, Problem
from face3d_trt.serving.slots import Allocator, Slab
from face3d_trt.serving.wire import DONE, EXPIRED, Answer, Records, Request, connect

if TYPE_CHECKING:
    from collections.abc import Sequence

Coeffs = npt.NDArray[np.float32]
RETRY_S = 0.05  # between two looks for an engine that is not there


class Lease:
    """Rows of the slab that a request has; they are free again once it is dropped, or answered.

    Args:
        room: Where.
        start: First row.
        rows: How many.
    """

    def __init__(self, room: Room, start: int, rows: int) -> None:
        self._room: Room | None = room
        self.start, self.rows = start, rows

    def crops(self) -> memoryview:
        """To be filled."""
        assert self._room is not None
        return self._room.slab.bytes_of(self.start, self.rows)

    def free(self) -> None:
        """Give them back; a second call does nothing."""
        room, self._room = self._room, None
        if room is not None:
            room.free(self.start, self.rows)


class Room:
    """A front's slab, and who has which of its rows.

    Args:
        rows: Crops.
        changed: Called with the rows in use, whenever they change.
    """

    def __init__(self, rows: int, changed: Callable[[int], None]) -> None:
        self.slab = Slab(rows)
        self._allocator, self._changed = Allocator(rows), changed

    def take(self, rows: int) -> Lease:
        """Room for `rows` crops.

        Raises:
            Problem: 429: there is none.
        """
        start = self._allocator.take(rows)
        if start is None:
            raise Problem(
                429,
                f"the queue is full: {self._allocator.used} of {self._allocator.rows} places are taken, and this "
                f"request wants {rows}",
                retry_s=SOON_S,
            )
        self._changed(self._allocator.used)
        return Lease(self, start, rows)

    def free(self, start: int, rows: int) -> None:
        """For leases."""
        self._allocator.free(start, rows)
        self._changed(self._allocator.used)


class _Link(asyncio.Protocol):
    """The connection to one engine, and what it has been asked.

    Args:
        slab: Where the crops are.
        links: Those that can be asked; this one is among them while the engine is there, and not a moment longer.
    """

    def __init__(self, slab: Slab, links: set[_Link]) -> None:
        self._slab, self._links, self._records = slab, links, Records(Answer)
        self._asked: dict[int, tuple[Lease, asyncio.Future[Coeffs]]] = {}
        self._transport: Any = None
        self._unsent: list[bytes] = []
        self._next = 0
        self.rows = 0
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._links.add(self)

    def ask(self, lease: Lease, future: asyncio.Future[Coeffs], deadline: float) -> None:
        """Send a request; the lease is this link's now."""
        self._next += 1
        self._asked[self._next] = lease, future
        self.rows += lease.rows
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send)  # what else this turn of the loop asks for goes along
        self._unsent.append(Request(self._next, lease.start, lease.rows, deadline).pack())

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        self._transport.write(b"".join(unsent))  # a transport that is closed drops it

    def data_received(self, data: bytes) -> None:
        for ticket, status in self._records.feed(data):
            lease, future = self._asked.pop(ticket)
            self.rows -= lease.rows
            if not future.done():
                if status == DONE:
                    future.set_result(self._slab.coeffs[lease.start : lease.start + lease.rows].copy())
                else:
                    future.set_exception(_late() if status == EXPIRED else _died())
            lease.free()

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.discard(self)
        for lease, future in self._asked.values():
            if not future.done():
                future.set_exception(_died())
            lease.free()
        self._asked.clear()
        self.lost.set_result(None)


class Engines:
    """All engines as one front sees them.

    Args:
        paths: Of their sockets.
        room: Where the crops are.
    """

    def __init__(self, paths: Sequence[Path], room: Room) -> None:
        self._paths, self.room = paths, room
        self._links: set[_Link] = set()
        self._were_ready = False

    @property
    def ready(self) -> int:
        """How many answer."""
        return len(self._links)

    async def infer(self, lease: Lease, deadline: float) -> Coeffs:
        """Coefficients (rows, 257) of the crops in a lease, which is used up.

        Args:
            lease: Filled.
            deadline: Seconds of the machine's monotonic clock.

        Raises:
            Problem: 503: no engine is there, or it died. 504: the deadline has passed.
        """
        if not self._links:
            lease.free()
            raise self.absent()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Coeffs] = loop.create_future()
        timer = loop.call_later(max(0.0, deadline - time.monotonic()), _expire, future)
        try:
            min(self._links, key=_rows).ask(lease, future, deadline)
            return await future
        finally:
            timer.cancel()

    def absent(self) -> Problem:
        """What to say while no engine answers."""
        what = "the engine died and is being replaced" if self._were_ready else "the engine is starting"
        return Problem(503, what, retry_s=SOON_S)

    async def keep(self) -> None:
        """Connect to every engine, and again whenever one is gone, for ever."""
        await asyncio.gather(*(self._keep(path) for path in self._paths))

    async def _keep(self, path: Path) -> None:
        loop, slab = asyncio.get_running_loop(), self.room.slab
        while True:
            try:
                link = connect(path, slab.file, slab.rows)  # a socket of this machine: at once
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            link.setblocking(False)
            _, protocol = await loop.create_unix_connection(lambda: _Link(slab, self._links), sock=link)
            self._were_ready = True
            await protocol.lost


def _rows(link: _Link) -> int:
    return link.rows


def _expire(future: asyncio.Future[Coeffs]) -> None:
    if not future.done():
        future.set_exception(_late())


def _late() -> Problem:
    return Problem(504, "the deadline has passed", retry_s=SOON_S)


def _died() -> Problem:
    return Problem(503, "the engine died with this request in it", retry_s=SOON_S)
