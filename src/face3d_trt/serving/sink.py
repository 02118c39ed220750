"""A request's body on its way into memory that was set aside for it, without a stop in between.

uvicorn gathers a body in a buffer of its own, pauses the connection at every 64 KiB, and copies each part twice more
until the application has it. For crops that is most of what a front does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from face3d_trt.serving.protocol import Protocol

KEY = "body"  # in a request's state


class GoneError(Exception):
    """Nobody waits for an answer any more."""


class Sink:
    """Where the body of one request goes.

    Args:
        protocol: Of the connection.
        cycle: uvicorn's record of the request.

    Attributes:
        at: Bytes that are there.
        whole: Whether the body has ended.
    """

    def __init__(self, protocol: Protocol, cycle: RequestResponseCycle) -> None:
        self._protocol, self._cycle = protocol, cycle
        self._target: memoryview | None = None
        self._ended: asyncio.Future[None] | None = None
        self.at = 0
        self.whole = False

    async def fill(self, target: memoryview) -> None:
        """Read on until the body ends. `at` says how much came, also where this is cancelled.

        Args:
            target: As long as the body.

        Raises:
            GoneError: The client has left.
        """
        cycle = self._cycle
        self._target = target
        self.write(cycle.body)
        cycle.body = bytearray()
        if not cycle.more_body:
            self.whole = True
            return
        if cycle.disconnected:
            raise GoneError
        self._ended = self._protocol.loop.create_future()
        self._protocol.sink = self
        self._protocol.ask_for_body(cycle)
        try:
            await self._ended
        finally:
            self._target = None
            self._protocol.sink = None

    def write(self, data: bytes | bytearray) -> None:
        """The next part. More than Content-Length never comes: the parser keeps to it."""
        if self._target is not None:
            self._target[self.at : self.at + len(data)] = data
            self.at += len(data)

    def end(self, *, whole: bool) -> None:
        """Nothing more comes."""
        self.whole = whole
        if self._ended is not None and not self._ended.done():
            if whole:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(GoneError())
