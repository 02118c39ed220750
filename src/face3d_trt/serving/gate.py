"""What every request passes: the token, the end of the server, bodies that nobody read, counts."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING

import anyio

from face3d_trt.serving.metrics import LATENCY, REQUESTS
from face3d_trt.serving.problems import MEDIA_TYPE, Problem
from face3d_trt.serving.sink import KEY, Sink

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

GUARDED = "/v1/"
_DROPPED = 1 << 20  # bytes of a body that are read only to keep the connection
_DROP_S = 1.0
_CLOSE = (b"connection", b"close")


class Gate:
    """Stands before the application.

    Args:
        app: The application.
        paths: That are counted by name; others are "other".
        token: Bearer token of everything below GUARDED; None: it wants none.

    Attributes:
        draining: Whether the server is about to end: each answer closes its connection.
    """

    def __init__(self, app: ASGIApp, paths: frozenset[str], token: str | None) -> None:
        self._app, self._paths = app, paths
        self._token = None if token is None else _digest(token.encode())
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            return
        passage = _Passage(self, scope, receive, send)
        app = self._app if self._admits(scope) else _unauthorized
        begun = time.monotonic()
        scope["state"]["begun"] = begun
        try:
            await app(scope, passage.receive, passage.send)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            REQUESTS.labels(path, str(passage.status or "gone")).inc()
            LATENCY.labels(path).observe(time.monotonic() - begun)

    def _admits(self, scope: Scope) -> bool:
        if self._token is None or not scope["path"].startswith(GUARDED):
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        return hmac.compare_digest(_digest(token.strip()), self._token) and scheme.lower() == b"bearer"


class _Passage:
    """One request on its way through."""

    __slots__ = ("_expected", "_gate", "_left", "_receive", "_scope", "_send", "status")

    def __init__(self, gate: Gate, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate, self._scope, self._receive, self._send = gate, scope, receive, send
        self.status: int | None = None
        self._expected = False
        self._left: float = 0  # bytes of the body that were not read yet
        for name, value in scope["headers"]:
            if name == b"content-length":
                self._left = int(value) if value.isdigit() and len(value) < 19 else float("inf")
            elif name == b"transfer-encoding":
                self._left = float("inf")
            elif name == b"expect":
                self._expected = True  # the client sends nothing before it is told to

    async def receive(self) -> Message:
        """A part of the body."""
        self._expected = False
        message = await self._receive()
        if message["type"] == "http.request":
            self._left = self._left - len(message.get("body", b"")) if message.get("more_body") else 0
        return message

    async def send(self, message: Message) -> None:
        """A part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            sink: Sink = self._scope["state"][KEY]
            self._left = 0 if sink.whole else max(0, self._left - sink.at)
            self._expected &= not sink.at
            if self._left > 0 and not self._expected and self._left <= _DROPPED:
                with anyio.move_on_after(_DROP_S):
                    while self._left > 0 and (await self.receive())["type"] == "http.request":
                        pass
            if self._left > 0 or self._gate.draining:
                message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
        await self._send(message)


async def _unauthorized(scope: Scope, receive: Receive, send: Send) -> None:
    problem = Problem(401, "this wants a bearer token", headers={"WWW-Authenticate": "Bearer"})
    await send_problem(problem, send)


async def send_problem(problem: Problem, send: Send) -> None:
    """Answer with a problem."""
    body = problem.body()
    headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    headers += [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _digest(token: bytes) -> bytes:
    """Of one length, so that comparing says nothing of the token's."""
    return hashlib.sha256(token).digest()
