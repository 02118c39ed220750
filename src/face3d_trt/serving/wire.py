"""What fronts and engines say to each other, and fronts and the processes that read photos. All on one machine."""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DONE, EXPIRED, FAILED = 0, 1, 2  # how a request ended
_HELLO = struct.Struct("<I")  # rows of the slab, whose file comes along
_REQUEST = struct.Struct("<QIId")
_ANSWER = struct.Struct("<QI")
_FRAME = struct.Struct("<II")  # bytes of the head, number of blobs
_BLOB = struct.Struct("<I")
_RECEIVED = 1 << 16


class Request(NamedTuple):
    """Rows of a slab that have crops in them.

    Attributes:
        ticket: Of the front that asks.
        start: First row.
        rows: How many.
        deadline: When nobody waits for them any more, seconds of the machine's monotonic clock.
    """

    ticket: int
    start: int
    rows: int
    deadline: float

    def pack(self) -> bytes:
        """For the engine."""
        return _REQUEST.pack(*self)


class Answer(NamedTuple):
    """How a request ended; its coefficients are in the slab where it is DONE."""

    ticket: int
    status: int

    def pack(self) -> bytes:
        """For the front."""
        return _ANSWER.pack(*self)


class Records:
    """Cuts a stream of bytes into records of one kind."""

    def __init__(self, kind: type[Request] | type[Answer]) -> None:
        self._kind: Any = kind
        self._struct = _REQUEST if kind is Request else _ANSWER
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """The records that are whole now."""
        data = self._rest + data
        whole = len(data) - len(data) % self._struct.size
        self._rest = data[whole:]
        return [self._kind(*each) for each in self._struct.iter_unpack(data[:whole])]


def connect(path: Path, file: int, rows: int) -> socket.socket:
    """Connect to an engine and give it the slab.

    Raises:
        OSError: It does not listen.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(str(path))
        socket.send_fds(link, [_HELLO.pack(rows)], [file])
    except BaseException:
        link.close()
        raise
    return link


def accept(link: socket.socket) -> tuple[int, int]:
    """In the engine: the rows of the slab that a front gives, and its file.

    Raises:
        OSError: It gives none.
    """
    data, files, _, _ = socket.recv_fds(link, _HELLO.size, 1)
    if len(data) != _HELLO.size or len(files) != 1:
        raise ConnectionError("no slab came")
    return _HELLO.unpack(data)[0], files[0]


def receive(link: socket.socket, records: Records) -> list[Any] | None:
    """The next records; None: the other side is gone."""
    try:
        data = link.recv(_RECEIVED)
    except OSError:
        return None
    return records.feed(data) if data else None


def pack_frame(head: dict[str, Any], blobs: Sequence[bytes | memoryview] = ()) -> list[bytes | memoryview]:
    """JSON and bytes as one message, in pieces to be written one after the other."""
    text = json.dumps(head).encode()
    sizes = b"".join(_BLOB.pack(len(blob)) for blob in blobs)
    return [_FRAME.pack(len(text), len(blobs)) + text + sizes, *blobs]


class FrameReader:
    """Reads frames from a blocking socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def read(self) -> tuple[dict[str, Any], list[bytearray]] | None:
        """The next one; None: the other side is gone."""
        try:
            size, count = _FRAME.unpack(self._exactly(_FRAME.size))
            head = json.loads(bytes(self._exactly(size)))
            sizes = [each for (each,) in _BLOB.iter_unpack(bytes(self._exactly(count * _BLOB.size)))]
            return head, [self._exactly(size) for size in sizes]
        except (EOFError, ConnectionError):
            return None

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            got = self._link.recv_into(view[done:])
            if not got:
                raise EOFError
            done += got
        return data


async def read_frame(reader: Any) -> tuple[dict[str, Any], list[bytes]]:
    """The next frame of an `asyncio.StreamReader`.

    Raises:
        asyncio.IncompleteReadError: The other side is gone.
    """
    size, count = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    head = json.loads(await reader.readexactly(size))
    sizes = [each for (each,) in _BLOB.iter_unpack(await reader.readexactly(count * _BLOB.size))]
    return head, [await reader.readexactly(size) for size in sizes]
