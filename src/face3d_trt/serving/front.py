"""A process that speaks HTTP. Connections come from the parent, which takes them in turns for all fronts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from face3d_trt.serving.app import make_app
from face3d_trt.serving.doorman import DRAIN, TAKE
from face3d_trt.serving.hub import Hub
from face3d_trt.serving.links import Engines, Room
from face3d_trt.serving.metrics import CAPACITY, CONNECTIONS, QUEUE, READY, Exposition
from face3d_trt.serving.protocol import MOST_CONNECTIONS, Protocol
from face3d_trt.serving.studio import Budget, Studio

if TYPE_CHECKING:
    from face3d_trt.serving.options import ServeOptions

_BODIES = 4  # of the largest size that a front has in memory, beside those that are being read
_TICK_S = 0.1
_SLACK_S = 5.0  # beyond the deadline, until requests that still run are dropped
_KEEP_ALIVE_S = 75
_FILES = 4 * MOST_CONNECTIONS
_LOUD = {"uvicorn.error": logging.ERROR, "python_multipart": logging.CRITICAL}  # else a line for each bad request


@dataclass(frozen=True)
class Front:
    """What a front is told.

    Attributes:
        options: Of the server.
        token: Bearer token.
        engines: Sockets of the engines' processes.
        photos: Sockets of the processes that read photos for this front.
        makes_files: Whether there is a morphable model.
    """

    options: ServeOptions
    token: str | None
    engines: tuple[Path, ...]
    photos: tuple[Path, ...]
    makes_files: bool


class _Server(uvicorn.Server):
    """Without uvicorn's handling of signals, which are the parent's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(connection: Connection, front: Front, channel: socket.socket) -> None:
    """The process's main function."""
    import uvloop

    for name, level in _LOUD.items():
        logging.getLogger(name).setLevel(level)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    uvloop.install()
    asyncio.run(_serve(front, channel))


async def _serve(front: Front, channel: socket.socket) -> None:
    hub = _hub(front)
    config = uvicorn.Config(
        make_app(hub, front.token),
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(front.options.deadline_s + _SLACK_S),
    )
    server = _Server(config)
    Protocol.head_s = front.options.body_s
    async with _beside(hub.engines.keep(), hub.studio.keep(), _count(hub, server)):
        loop = asyncio.get_running_loop()
        channel.setblocking(False)
        loop.add_reader(channel.fileno(), _listen, loop, channel, server, hub)
        await server.serve(sockets=[])


def _hub(front: Front) -> Hub:
    options = front.options
    CAPACITY.labels("infer").set(options.front_queue)
    engines = Engines(front.engines, Room(options.front_queue, QUEUE.labels("infer").set))
    budget = Budget(options.max_body * (_BODIES + len(front.photos)))
    studio = Studio(front.photos, budget, options.max_images, makes_files=front.makes_files)
    CAPACITY.labels("photo").set(studio.capacity)
    return Hub(options, engines, studio, Exposition())


def _listen(loop: asyncio.AbstractEventLoop, channel: socket.socket, server: _Server, hub: Hub) -> None:
    """What the parent says."""
    while True:
        try:
            said, files, _, _ = socket.recv_fds(channel, 1, 1)
        except BlockingIOError:
            return
        if said == TAKE:
            client = socket.socket(fileno=files[0])
            client.setblocking(False)
            task = loop.create_task(_take(loop, client, server))
            server.server_state.tasks.add(task)
            task.add_done_callback(server.server_state.tasks.discard)
        elif said == DRAIN:
            hub.gate.draining = True
        else:
            loop.remove_reader(channel.fileno())
            hub.gate.draining = True
            server.should_exit = True
            return


async def _take(loop: asyncio.AbstractEventLoop, client: socket.socket, server: _Server) -> None:
    def protocol() -> Protocol:
        return Protocol(server.config, server.server_state, {}, loop)

    try:
        await loop.connect_accepted_socket(protocol, client)
    except OSError:  # it has left already
        client.close()


async def _count(hub: Hub, server: _Server) -> None:
    """Tell what only this process knows, for ever."""
    photos = QUEUE.labels("photo")
    while True:
        READY.set(hub.engines.ready)
        CONNECTIONS.set(len(server.server_state.connections))
        photos.set(hub.studio.queued)
        await asyncio.sleep(_TICK_S)


@contextlib.asynccontextmanager
async def _beside(*work: object) -> AsyncIterator[None]:
    """Have coroutines run meanwhile."""
    tasks = [asyncio.ensure_future(each) for each in work]  # type: ignore[call-overload]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
