"""HTTP as clients may speak it, which frameworks' clients rarely do."""

from __future__ import annotations

import socket
import threading
from http.client import HTTPResponse
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pytest
from tests.serving.served import CROP_BYTES, RAW, Served

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def link(server: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as opened:
        yield opened


def head(*more: str, length: int = CROP_BYTES) -> bytes:
    lines = ("POST /v1/coeffs HTTP/1.1", "Host: x", f"Content-Type: {RAW}", f"Accept: {RAW}", *more)
    return "\r\n".join((*lines, f"Content-Length: {length}", "", "")).encode()


class _Kept:
    """What HTTPResponse takes for a socket; its stream goes on behind one answer."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def makefile(self, mode: str) -> _Kept:
        return self

    def close(self) -> None:
        pass


def answers(link: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """So many answers, one after the other on one connection."""
    found = []
    with link.makefile("rb") as stream:
        for _ in range(count):
            response = HTTPResponse(_Kept(stream))  # type: ignore[arg-type]
            response.begin()
            found.append((response.status, response.read()))
    return found


def test_requests_that_do_not_wait_for_answers_get_theirs_in_order(server: Served, link, many_crops):
    expected = [server.crops(crop.tobytes()).body for crop in many_crops[:5]]
    data = b"".join(head() + crop.tobytes() for crop in many_crops[:5])
    sending = threading.Thread(target=link.sendall, args=(data + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",))
    sending.start()
    found = answers(link, 6)
    sending.join(60)
    assert [status for status, _ in found] == [200] * 6
    for (_, body), own in zip(found, expected, strict=False):
        np.testing.assert_allclose(np.frombuffer(body, "<f4"), np.frombuffer(own, "<f4"), atol=1e-4)


def test_a_client_that_asks_first_is_told_to_send(link, many_crops):
    link.sendall(head("Expect: 100-continue"))
    assert link.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    link.sendall(many_crops[0].tobytes())
    assert answers(link, 1)[0][0] == 200


def test_a_client_that_asks_first_is_told_not_to_send(link):
    link.sendall(head("Expect: 100-continue", length=10**9))
    assert answers(link, 1)[0][0] == 413


def test_a_request_in_single_bytes_is_one(link, many_crops):
    for byte in head():
        link.sendall(bytes([byte]))
    link.sendall(many_crops[0].tobytes())
    assert answers(link, 1)[0][0] == 200


def test_http_1_0_is_answered_and_closed(server: Served, link):
    link.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answers(link, 1)[0][0] == 200
    assert link.recv(1) == b""


def test_rubbish_behind_a_request_ends_the_connection_and_nothing_else(server: Served, link, many_crops):
    link.sendall(head() + many_crops[0].tobytes() + b"\x00rubbish\r\n\r\n")
    assert answers(link, 1)[0][0] in (200, 400)
    assert server.crops(many_crops[0].tobytes()).status == 200


UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA")


def test_a_client_that_asks_for_http_2_is_answered_in_1_1(server: Served, link, many_crops):
    """Java's client does that with every request; parsers take what follows for the other protocol."""
    expected = [server.crops(crop.tobytes()).body for crop in many_crops[:2]]
    link.sendall(b"".join(head(*UPGRADE) + crop.tobytes() for crop in many_crops[:2]))
    assert answers(link, 2) == [(200, body) for body in expected]


def test_a_body_that_does_not_come_is_not_taken_from_memory_of_others(server: Served, link, many_crops):
    assert server.crops(many_crops[0].tobytes()).status == 200  # its crop stays where the next one goes
    link.sendall(head(*UPGRADE))
    link.settimeout(1)
    with pytest.raises(TimeoutError):
        link.recv(1)


def test_chunks_behind_a_wish_for_http_2_are_no_requests(link):
    hidden = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    link.sendall(
        b"POST /v1/coeffs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: %s\r\n" % RAW.encode()
    )
    link.sendall("\r\n".join((*UPGRADE, "", "")).encode() + hidden)
    assert answers(link, 1)[0][0] == 411
    assert link.recv(1) == b""
