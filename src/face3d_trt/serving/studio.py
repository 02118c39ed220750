"""A front's side of the processes that read photos."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from face3d_trt.serving.links import RETRY_S
from face3d_trt.serving.problems import SOON_S, Problem
from face3d_trt.serving.wire import pack_frame, read_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

_WAITING = 16  # photos for each process
_LOOK_S = 0.2  # between two looks whether an idle process is still there


class Budget:
    """Bytes of bodies that may be in memory at a time.

    Args:
        most: All of them.
    """

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, size: int) -> None:
        """Set `size` bytes aside.

        Raises:
            Problem: 429: they are not there.
        """
        if size > self.left:
            raise Problem(429, "too many photos are being received", retry_s=SOON_S)
        self.left -= size

    def free(self, size: int) -> None:
        """Give them back."""
        self.left += size


class Desk:
    """The connection to one process, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.lost = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether the process has not hung up."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def ask(self, head: dict[str, Any], blobs: Sequence[bytes], deadline: float) -> tuple[dict[str, Any], Any]:
        """A frame's answer.

        Raises:
            Problem: What the process says of the photo; 503: it died; 504: the deadline has passed.
        """
        try:
            with anyio.fail_after(deadline - time.monotonic()):
                self._writer.writelines(pack_frame(head, blobs))
                await self._writer.drain()
                told, answer = await read_frame(self._reader)
        except TimeoutError:
            self.close()
            raise Problem(504, "the deadline has passed while the photo was read", retry_s=SOON_S) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            raise Problem(503, "the process that read this photo died of it", retry_s=SOON_S) from None
        except BaseException:
            self.close()  # half an answer may be on its way
            raise
        if problem := told.get("problem"):
            raise Problem(problem["status"], problem["detail"], allowed=problem["allowed"])
        return told, answer

    def close(self) -> None:
        """Hang up."""
        self._writer.close()
        self.lost.set()


class Studio:
    """The processes that read photos for one front.

    Args:
        paths: Of their sockets.
        budget: For bodies.
        most: Photos of one request.
        makes_files: Whether they have a morphable model.
    """

    def __init__(self, paths: Sequence[Path], budget: Budget, most: int, *, makes_files: bool) -> None:
        self._paths, self.budget, self._most, self.makes_files = paths, budget, most, makes_files
        self._idle: list[Desk] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._connected = 0
        self.queued = 0

    @property
    def there(self) -> bool:
        """Whether this server reads photos at all."""
        return bool(self._paths)

    @property
    def ready(self) -> bool:
        """Whether a process is connected, or none is wanted."""
        return self._connected > 0 or not self._paths

    @property
    def capacity(self) -> int:
        """Photos that may wait, or be read: those of the largest request at least."""
        return max(len(self._paths) * _WAITING, self._most) if self._paths else 0

    @contextmanager
    def places(self, photos: int) -> Iterator[None]:
        """Places in the queue for a request's photos.

        Raises:
            Problem: 429: there are not as many.
        """
        if self.queued + photos > self.capacity:
            raise Problem(429, f"{self.queued} photos wait already, of at most {self.capacity}", retry_s=SOON_S)
        self.queued += photos
        try:
            yield
        finally:
            self.queued -= photos

    @asynccontextmanager
    async def desk(self, deadline: float) -> AsyncIterator[Desk]:
        """A process for oneself, for one photo.

        Raises:
            Problem: 504: the deadline has passed meanwhile.
        """
        desk = await self._take(deadline)
        try:
            yield desk
        finally:
            if desk.alive:
                self._idle.append(desk)
                self._wake()
            else:
                desk.close()

    async def keep(self) -> None:
        """Connect to every process, and again whenever one is gone, for ever."""
        await asyncio.gather(*(self._keep(path) for path in self._paths))

    async def _take(self, deadline: float) -> Desk:
        while True:
            while self._idle:
                desk = self._idle.pop()
                if desk.alive:
                    return desk
                desk.close()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await asyncio.wait_for(future, max(0.0, deadline - time.monotonic()))
            except BaseException as error:
                if future in self._waiting:
                    self._waiting.remove(future)
                elif self._idle:
                    self._wake()  # the turn was this one's; another takes it
                if isinstance(error, asyncio.TimeoutError | TimeoutError):
                    raise Problem(504, "the deadline passed before the photo's turn came", retry_s=SOON_S) from None
                raise

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    async def _keep(self, path: Path) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(path))
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            desk = Desk(reader, writer)
            try:
                await read_frame(reader)  # it says when it takes its next front
            except (asyncio.IncompleteReadError, ConnectionError):
                desk.close()
                continue
            self._connected += 1
            self._idle.append(desk)
            self._wake()
            try:
                await self._until_lost(desk)
            finally:
                self._connected -= 1

    async def _until_lost(self, desk: Desk) -> None:
        while desk.alive:
            with suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(desk.lost.wait(), _LOOK_S)
