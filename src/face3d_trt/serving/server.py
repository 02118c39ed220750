"""The parent of a server's processes: it has the door, and replaces who dies.

serve(ServeOptions(Path("engines/face3d_resnet50.fp16.plan")))     # until SIGTERM or Ctrl-C

One process for each GPU has an engine, some speak HTTP, some read photos. Crops lie in memory that a front shares with
the engines; who dies takes nothing along but the requests that were in it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.errors import Face3DError, MissingError, UsageError
from face3d_trt.optional import require
from face3d_trt.reconstruct.engines import EngineSetup
from face3d_trt.reconstruct.facefile import face_path
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.messages import Broken, Ready
from face3d_trt.reconstruct.processes import QUIET
from face3d_trt.report import SILENT, Reporter
from face3d_trt.serving.crew import Post, quiet_environment
from face3d_trt.serving.doorman import BACKLOG, Doorman

if TYPE_CHECKING:
    from face3d_trt.serving.options import ServeOptions

_NEEDED = ("uvicorn", "fastapi", "httptools", "uvloop", "python_multipart")
_LONGEST_PATH = 80  # of a socket; Linux takes 107
_SLACK_S = 8.0  # beyond the deadline, for fronts to end
_ENGINE_S = 10.0  # for an engine to end


def serve(options: ServeOptions, report: Reporter = SILENT) -> None:
    """Serve until SIGTERM or SIGINT; then every request that was accepted is answered first.

    A second signal ends it at once.

    Args:
        options: See ServeOptions.
        report: Told of the address, of what is ready, and of processes that died.

    Raises:
        MissingError: A package, a GPU or a file is missing.
        UsageError: The port is taken, the plan is not for this machine, or the token file holds no token.
    """
    for module in _NEEDED:
        require(module, "serve", "serving HTTP")
    if not options.plan.is_file():
        raise MissingError(f"{options.plan} is not there", run="face3d-trt build --fp16    # serve builds nothing")
    token = options.token()
    folder = _folder()
    try:
        asyncio.run(_Server(options, token, folder, report).run())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Server:
    """One run."""

    def __init__(self, options: ServeOptions, token: str | None, folder: Path, report: Reporter) -> None:
        self._options, self._token, self._folder, self._report = options, token, folder, report
        (folder / "metrics").mkdir()
        self._environment = {**QUIET, "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics")}
        os.environ.update(self._environment)  # before prometheus-client is imported, which looks at it then
        require("prometheus_client", "serve", "serving HTTP")
        from face3d_trt.serving import metrics

        self._metrics = metrics
        self._listener = _listen(options)
        self._door: Doorman[str] = Doorman(self._listener)
        self._devices = _devices(options.replicas)
        self._face = _face(options)
        self._stop = asyncio.Event()
        self._now = asyncio.Event()
        self._error: Face3DError | None = None
        self._engines = [self._engine(index, device) for index, device in enumerate(self._devices)]
        self._fronts = [self._front(index) for index in range(options.front_count)]
        self._photos: list[Post] = []

    async def run(self) -> None:
        """Everything."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        host, port = self._listener.getsockname()[:2]
        self._report.stage(f"serving   http://{f'[{host}]' if ':' in host else host}:{port}")
        try:
            for post in (*self._fronts, *self._engines):
                post.start()
            self._door.open()
            await self._stop.wait()
            if self._error is None:
                await self._drain()
        finally:
            self._listener.close()
            for post in (*self._fronts, *self._photos, *self._engines):
                post.stop_watching()
            self._end()
        if self._error is not None:
            raise self._error

    def _engine(self, index: int, device: int) -> Post:
        from face3d_trt.serving import engines

        options, cores = self._options, len(os.sched_getaffinity(0))
        on_cpu = sum(each == CPU for each in self._devices)
        setup = EngineSetup(options.plan, device, max(1, (cores - 1) // max(1, on_cpu)))
        replica = engines.Replica(setup, self._engine_path(index), options.max_batch, options.max_wait_s)
        return self._post(f"engine {index}", engines.run, lambda: (replica,), self._environment)

    def _front(self, index: int) -> Post:
        from face3d_trt.serving import front

        options = self._options
        photos = tuple(self._photo_path(each) for each in range(index, options.photo_count, options.front_count))
        paths = tuple(self._engine_path(each) for each in range(len(self._devices)))
        told = front.Front(options, self._token, paths, photos, self._face is not None)

        name = f"front {index}"
        return self._post(name, front.run, lambda: (told, self._door.channel(name)), self._environment)

    def _photo(self, index: int, ready: Ready) -> Post:
        from face3d_trt.serving import photos

        worker = photos.PhotoWorker(
            path=self._photo_path(index),
            template=ready.template,
            face=self._face,
            checkpoint_sha256=ready.checkpoint_sha256,
            max_pixels=self._options.max_pixels,
            patience_s=self._options.deadline_s + 1,
        )
        cores = len(os.sched_getaffinity(0)) // self._options.photo_count
        return self._post(
            f"photos {index}", photos.run, lambda: (worker,), self._environment | quiet_environment(cores)
        )

    def _post(self, name: str, main: Any, arguments: Any, environment: dict[str, str]) -> Post:
        return Post(name, main, arguments, environment, heard=self._heard, died=self._died)

    def _heard(self, post: Post, said: Ready | Broken | None) -> None:
        if isinstance(said, Broken):
            if post.was_ready:
                self._report.warn(f"{post.name}: {said.error}")
            elif self._error is None:  # it never worked here: nothing to wait for
                self._error = _explained(said.error, post)
                self._stop.set()
            return
        self._report.stage(f"ready     {post.name}{f': {said.backend}' if said else ''}")
        if said is not None and not self._photos:
            self._photos = [self._photo(index, said) for index in range(self._options.photo_count)]
            for photo in self._photos:
                photo.start()

    def _died(self, post: Post, how: str, pid: int) -> None:
        self._metrics.forget(pid)
        self._door.gone(post.name)
        if not self._stop.is_set():
            self._metrics.RESTARTS.labels(post.name.partition(" ")[0]).inc()
            self._report.warn(f"{post.name} died ({how}) and is being replaced")

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._now.set()
        self._stop.set()

    async def _drain(self) -> None:
        """Say that the end is near, take who comes meanwhile, then let the fronts finish."""
        self._report.stage("ending    once every request is answered; again ends at once")
        self._door.announce_the_end()
        await self._wait(self._options.drain_s)
        for post in (*self._fronts, *self._photos, *self._engines):
            post.stop_watching()  # who dies now is not replaced
        self._door.close()
        until = time.monotonic() + self._options.deadline_s + _SLACK_S
        while any(post.alive for post in self._fronts) and time.monotonic() < until and not self._now.is_set():
            await self._wait(0.05)

    async def _wait(self, seconds: float) -> None:
        with suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._now.wait(), seconds)

    def _end(self) -> None:
        hurried = self._now.is_set() or self._error is not None
        for post in (*self._fronts, *self._photos):
            post.end(0)
        for post in self._engines:
            post.end(0 if hurried else _ENGINE_S)

    def _engine_path(self, index: int) -> Path:
        return self._folder / f"engine-{index}"

    def _photo_path(self, index: int) -> Path:
        return self._folder / f"photos-{index}"


def _listen(options: ServeOptions) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {options.host}, port {options.port}: {_reason(error)}",
            allowed="an address of this machine and a port that is free",
        ) from error
    listener.setblocking(False)
    return listener


def _reason(error: OSError) -> str:
    """In the system's words; Python's repeat the address."""
    known = error.errno is not None and error.errno > 0  # below 0: a name that cannot be looked up
    return os.strerror(error.errno) if known and error.errno else str(error.strerror or error)


def _devices(replicas: int | None) -> list[int]:
    """Where the engines are: GPUs in turn, or the CPU."""
    there = list(range(len(visible_gpus()))) or [CPU]
    return [there[index % len(there)] for index in range(replicas or len(there))]


def _face(options: ServeOptions) -> Path | None:
    """The morphable model, where there is one."""
    try:
        return face_path(options.plan) if options.photo_count else None
    except MissingError:
        return None


def _explained(error: Face3DError, post: Post) -> Face3DError:
    if post.name.startswith("photos"):
        error.run = f"{error.run}    # or --photo-workers 0: crops only" if error.run else None
    return error


def _folder() -> Path:
    """For sockets; only this user enters. Not deep: their paths may have about a hundred characters."""
    folder = Path(tempfile.mkdtemp(prefix="face3d-serve-"))
    if len(str(folder)) > _LONGEST_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="face3d-serve-", dir="/tmp"))
    return folder
