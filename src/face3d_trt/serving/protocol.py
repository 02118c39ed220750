"""uvicorn's HTTP protocol, with what a server in the open needs: limits on headers and silence, answers that arrive.

uvicorn waits for headers for ever and takes any number of them, and closes a connection at once after an early answer,
so that a client that is still sending gets a reset instead of the answer.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import TimerHandle
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from face3d_trt.serving.problems import MEDIA_TYPE, Problem
from face3d_trt.serving.sink import KEY, Sink

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

MOST_HEAD = 16 << 10  # bytes of a request's line and headers
LINGER_S = 2.0  # that a closed connection's last bytes are read and dropped
FLUSH_S = 20.0  # for a client to take an answer after that
IDLE_S = 0.3  # that an idle connection is kept when the server ends: a request may be on its way
MOST_CONNECTIONS = 2048  # of a front


class Protocol(HttpToolsProtocol):
    """One connection.

    Attributes:
        head_s: For a request's line and headers.
    """

    head_s = 10.0
    sink: Sink | None = None  # that the body goes into

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timer: TimerHandle | None = None
        self._head = self._raw = 0  # bytes of the line and the headers; of all that came before they were whole
        self._in_head = True
        self._owed = 0  # bytes of a body that come past the parser
        self._over = False  # nothing that comes from now on counts
        self._refusal = Problem(400, "this is not HTTP")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(_Lingering(transport, self))  # type: ignore[arg-type]
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse(Problem(503, f"this process has {MOST_CONNECTIONS} connections", retry_s=1))
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._disarm()
        self._over = True
        if self.sink is not None:
            self.sink.end(whole=False)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something came."""
        if self._over:
            return
        if self._in_head:
            self._raw += len(data)
            self._arm()
        self._unset_keepalive_if_required()
        while data and not self._over:
            data = self._take_owed(data) if self._owed else self._parse(data)
        if self._in_head and self._raw > 2 * MOST_HEAD and not self._over:  # one header without an end
            self._refuse(_too_long())

    def _parse(self, data: bytes) -> bytes:
        """Hand it to the parser; what that leaves behind a request that asks for another protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        except httptools.HttpParserUpgrade as end:
            return data[end.args[0] :]
        return b""

    def _take_owed(self, data: bytes) -> bytes:
        """The body that the parser has left out, since it takes it for the other protocol; what is behind it."""
        part, rest = data[: self._owed], data[self._owed :]
        self._owed -= len(part)
        self.on_body(part)
        if not self._owed:
            self.on_message_complete()
        return rest

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request's line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A request begins."""
        self._in_head = False
        self._disarm()
        super().on_headers_complete()
        self.scope["state"][KEY] = Sink(self, self.cycle)
        if self.parser.should_upgrade():  # Java's client asks for HTTP/2 with every first request; we stay with 1.1
            self._owed = _body_length(self.headers)

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        if self.sink is None:
            super().on_body(body)
        else:
            self.sink.write(body)

    def ask_for_body(self, cycle: RequestResponseCycle) -> None:
        """Let it come."""
        if cycle.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        self.flow.resume_reading()

    def on_message_complete(self) -> None:
        """A request's body is whole."""
        if self._owed:
            return
        super().on_message_complete()
        if (sink := self.sink) is not None:
            self.sink = None  # what comes now is the next request's, if it does not wait for this one's answer
            sink.end(whole=True)
        self._in_head, self._raw = True, 0

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP, or too much of it."""
        self._refuse(self._refusal)

    def shutdown(self) -> None:
        """The server ends: finish what is under way, and wait a little for what may be."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(IDLE_S, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def timeout_keep_alive_handler(self) -> None:
        """Nothing has come for a while."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # it does not even take its answer
        else:
            super().timeout_keep_alive_handler()

    def linger(self, transport: asyncio.Transport) -> None:
        """Close: say so, but read on for a while, as unread bytes would make the answer a reset."""
        self._over = True
        self._disarm()
        self._unset_keepalive_if_required()
        if transport.is_closing():
            return
        self.flow.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
        self.loop.call_later(LINGER_S, _close, self.loop, transport)

    def _close_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MOST_HEAD:
            self._refusal = _too_long()
            raise ValueError("too long")  # to the parser, which ends with send_400_response

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_s, self._silent)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _silent(self) -> None:
        self._timer = None
        busy = self.cycle is not None and not self.cycle.response_complete
        if not self._over and self._in_head and not busy:
            if self._raw:
                self._refuse(Problem(408, f"the headers did not come within {self.head_s:g} s"))
            else:
                self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        body = problem.body()
        self.transport.write(
            STATUS_LINE[problem.status]
            + b"content-type: "
            + MEDIA_TYPE.encode()
            + b"\r\ncontent-length: "
            + str(len(body)).encode()
            + b"\r\n"
            + b"".join(f"{name}: {value}\r\n".encode().lower() for name, value in problem.headers.items())
            + b"connection: close\r\n\r\n"
            + body
        )
        self.transport.close()


class _Lingering:
    """A transport whose `close` is the protocol's `linger`."""

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        self._transport, self._protocol = transport, protocol
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._closed or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send, unless it was closed: a request may still run whose client has gone on to send rubbish."""
        if not self._closed:
            self._transport.write(data)

    def close(self) -> None:
        """Close it in time."""
        if not self._closed:
            self._closed = True
            self._protocol.linger(self._transport)


def _close(loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
    if transport.is_closing():
        return
    transport.close()  # after what is still to be sent
    loop.call_later(FLUSH_S, transport.abort)


def _body_length(headers: list[tuple[bytes, bytes]]) -> int:
    """Bytes of a request's body, which the parser has found to be well told; one in chunks is refused anyway."""
    for name, value in headers:
        if name == b"transfer-encoding":
            return sys.maxsize
        if name == b"content-length":
            return int(value)
    return 0


def _too_long() -> Problem:
    return Problem(431, f"the request's line and headers have more than {MOST_HEAD:,} bytes")
