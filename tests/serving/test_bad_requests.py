"""Sixty kinds of bad requests: each gets its status as a problem, and the server is as well as before."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import pytest
from PIL import Image
from tests.serving.served import CROP_BYTES, RAW, Answer, Served, children

CRLF = b"\r\n"
CROP = bytes(CROP_BYTES)
FORM = "multipart/form-data; boundary=b"


def head(line: str, *headers: str) -> bytes:
    return CRLF.join([line.encode("latin-1"), b"Host: x", *(each.encode("latin-1") for each in headers), b"", b""])


def post(path: str, *headers: str) -> bytes:
    return head(f"POST {path} HTTP/1.1", *headers)


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that says it is so large, with whatever data."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def picture(kind: str, size: tuple[int, int] = (64, 64), **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "navy").save(file, kind, **options)
    return file.getvalue()


def form(*parts: tuple[str, bytes], end: bytes = b"--b--\r\n") -> bytes:
    """Parts: the disposition's parameters, and the content."""
    text = b"".join(
        b"--b\r\nContent-Disposition: form-data; " + about.encode("utf-8") + b"\r\n\r\n" + content + CRLF
        for about, content in parts
    )
    return text + end


BOMB = zlib.compress(bytes(1 << 20)) * 2  # beside what the header says, it hardly matters
JPEG = picture("JPEG")
BODY = f"Content-Length: {CROP_BYTES}"
TYPE = f"Content-Type: {RAW}"
PNG = "Content-Type: image/png"
CHUNKED = "Transfer-Encoding: chunked"
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"

Bad = Callable[[Served], Answer]
CASES: dict[str, tuple[int, Bad]] = {
    # what is sent as a picture
    "no bytes": (400, lambda s: s.photo(b"")),
    "text": (400, lambda s: s.photo(b"hello")),
    "one byte": (400, lambda s: s.photo(b"\xff")),
    "zeros": (400, lambda s: s.photo(bytes(1000))),
    "html": (400, lambda s: s.photo(b"<html><script>alert(1)</script></html>")),
    "svg": (400, lambda s: s.photo(b"<svg xmlns='http://www.w3.org/2000/svg'/>")),
    "gif": (400, lambda s: s.photo(picture("GIF"))),
    "tiff": (400, lambda s: s.photo(picture("TIFF"))),
    "pdf": (400, lambda s: s.photo(picture("PDF"))),
    "ico": (400, lambda s: s.photo(picture("ICO"))),
    "gzip of a jpeg": (400, lambda s: s.photo(zlib.compress(JPEG))),
    "jpeg without end": (400, lambda s: s.photo(picture("JPEG", (600, 600))[:700])),
    "jpeg header alone": (400, lambda s: s.photo(JPEG[:20])),
    "png without data": (400, lambda s: s.photo(png(64, 64))),
    "png with a byte of data": (400, lambda s: s.photo(png(64, 64, b"x"))),
    "png of no size": (400, lambda s: s.photo(png(0, 64))),
    "webp cut": (400, lambda s: s.photo(picture("WEBP", (200, 200))[:40])),
    "bmp cut": (400, lambda s: s.photo(picture("BMP")[:60])),
    "png bomb": (413, lambda s: s.photo(png(30000, 30000, BOMB))),
    "png of 4 billion px": (413, lambda s: s.photo(png(2**31 - 1, 2**31 - 1, BOMB))),
    "png one pixel high": (413, lambda s: s.photo(png(2**30, 1, BOMB))),
    "bmp that says it is huge": (413, lambda s: s.photo(_huge_bmp())),
    "jpeg that says it is huge": (413, lambda s: s.photo(_huge_jpeg())),
    "more pixels than allowed": (413, lambda s: s.photo(picture("PNG", (2001, 2000)))),
    "no face": (422, lambda s: s.photo(picture("PNG", (300, 300)))),
    "no face in one pixel": (422, lambda s: s.photo(picture("PNG", (1, 1)))),
    "no face in a stripe": (422, lambda s: s.photo(picture("JPEG", (2000, 1)))),
    # forms
    "form without boundary": (400, lambda s: s.photo(form(), kind="multipart/form-data")),
    "form of an endless boundary": (400, lambda s: s.photo(form(), kind=FORM + "x" * 5000)),
    "form of another boundary": (400, lambda s: s.photo(form(('name="i"; filename="a"', JPEG)), kind=FORM + "x")),
    "form without parts": (400, lambda s: s.photo(form(), kind=FORM)),
    "form without a file": (400, lambda s: s.photo(form(('name="i"', JPEG)), kind=FORM)),
    "form cut off": (400, lambda s: s.photo(form(('name="i"; filename="a"', JPEG), end=b""), kind=FORM)),
    "form with an empty file": (400, lambda s: s.photo(form(('name="i"; filename="a"', b"")), kind=FORM)),
    "form with a path as name": (
        400,
        lambda s: s.photo(form(('name="i"; filename="../../../../etc/passwd"', b"root")), kind=FORM),
    ),
    "form with zero bytes in a name": (
        400,
        lambda s: s.photo(form(('name="i"; filename="a\x00/../b"', b"root")), kind=FORM),
    ),
    "form with too many files": (400, lambda s: s.photo(form(*[('name="i"; filename="a"', JPEG)] * 4), kind=FORM)),
    "form that is rubbish": (400, lambda s: s.photo(b"rubbish", kind=FORM)),
    # kinds of bodies
    "json": (415, lambda s: s.photo(b"{}", kind="application/json")),
    "a web form": (415, lambda s: s.photo(b"a=b", kind="application/x-www-form-urlencoded")),
    "no type": (415, lambda s: s.raw(post("/v1/reconstruct", "Content-Length: 3") + b"abc")),
    "crops as a picture's type": (415, lambda s: s.ask("POST", "/v1/coeffs", CROP, {"Content-Type": "image/png"})),
    # lengths
    "no crops": (400, lambda s: s.crops(b"")),
    "half a crop": (400, lambda s: s.crops(CROP[: CROP_BYTES // 2])),
    "a crop and a byte": (400, lambda s: s.crops(CROP + b"x")),
    "another shape": (400, lambda s: s.crops(CROP, **{"X-Shape": "2,224,224,3"})),
    "a shape of words": (400, lambda s: s.crops(CROP, **{"X-Shape": "one"})),
    "too many crops": (413, lambda s: s.crops(CROP * 9)),
    "a length beyond all": (413, lambda s: s.raw(post("/v1/coeffs", TYPE, f"Content-Length: {10**17}"))),
    "a photo beyond the limit": (413, lambda s: s.photo(bytes((4 << 20) + 1))),
    "a photo of 10 TB": (413, lambda s: s.raw(post("/v1/reconstruct", PNG, f"Content-Length: {10**13}"))),
    "no length": (411, lambda s: s.raw(post("/v1/coeffs", TYPE))),
    "chunked": (411, lambda s: s.raw(post("/v1/reconstruct", PNG, CHUNKED) + CHUNKS)),
    "chunked without end": (411, lambda s: s.raw(post("/v1/coeffs", TYPE, CHUNKED) + b"fffffff\r\nabc")),
    # time
    "a slow body": (408, lambda s: s.raw(post("/v1/coeffs", TYPE, BODY), CROP[:1000], 0.2)),
    "slow headers": (408, lambda s: s.raw(b"GET /healthz HTTP/1.1\r\nHost", b": ", 0.2)),
    # parameters and paths
    "a parameter that does not exist": (400, lambda s: s.photo(JPEG, "?meshes=obj")),
    "a mesh of another kind": (400, lambda s: s.photo(JPEG, "?mesh=stl")),
    "a texture of another kind": (400, lambda s: s.photo(JPEG, "?texture=tga")),
    "a texture beyond the limit": (400, lambda s: s.photo(JPEG, "?texture=png&texture_size=100000")),
    "a texture size that is no number": (400, lambda s: s.photo(JPEG, "?texture_size=1e9")),
    "faces of another kind": (400, lambda s: s.photo(JPEG, "?faces=both")),
    "no such path": (404, lambda s: s.ask("GET", "/v1/nothing")),
    "a path upwards": (404, lambda s: s.raw(head("GET /../../etc/passwd HTTP/1.1"))),
    "a path upwards, encoded": (404, lambda s: s.raw(head("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1"))),
    "a path with a zero byte": (404, lambda s: s.raw(head("GET /healthz%00.png HTTP/1.1"))),
    "another method": (405, lambda s: s.ask("GET", "/v1/coeffs")),
    "deletion": (405, lambda s: s.ask("DELETE", "/v1/reconstruct")),
    "writing to metrics": (405, lambda s: s.ask("POST", "/metrics", b"x")),
    # HTTP itself
    "no HTTP": (400, lambda s: s.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 4)),
    "a method that is none": (400, lambda s: s.raw(head("FETCH / HTTP/1.1"))),
    "two lengths": (400, lambda s: s.raw(post("/v1/coeffs", TYPE, "Content-Length: 3", "Content-Length: 4") + b"abcd")),
    "a length and chunks": (400, lambda s: s.raw(post("/v1/coeffs", TYPE, BODY, CHUNKED) + CHUNKS)),
    "a negative length": (400, lambda s: s.raw(post("/v1/coeffs", TYPE, "Content-Length: -5"))),
    "a length of words": (400, lambda s: s.raw(post("/v1/coeffs", TYPE, "Content-Length: ten"))),
    "a length beyond 64 bits": (400, lambda s: s.raw(post("/v1/coeffs", TYPE, f"Content-Length: {10**25}"))),
    "a long path": (431, lambda s: s.raw(head("GET /" + "a" * 20000 + " HTTP/1.1"))),
    "a long query": (431, lambda s: s.raw(head("GET /healthz?" + "a" * 20000 + " HTTP/1.1"))),
    "a long header": (431, lambda s: s.raw(head("GET /healthz HTTP/1.1", "X: " + "a" * 20000))),
    "many headers": (431, lambda s: s.raw(head("GET /healthz HTTP/1.1", *[f"X-{n}: y" for n in range(3000)]))),
    "a header without end": (431, lambda s: s.raw(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 50000)),
}  # fmt: skip


def _huge_bmp() -> bytes:
    data = bytearray(picture("BMP"))
    data[18:26] = struct.pack("<ii", 100_000, 100_000)
    return bytes(data)


def _huge_jpeg() -> bytes:
    data = bytearray(JPEG)
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", 65000, 65000)
    return bytes(data)


def resident(served: Served) -> int:
    """MiB of all its processes."""
    total = 0
    for pid in (served.process.pid, *children(served.process.pid)):
        with open(f"/proc/{pid}/smaps_rollup") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) // 1024
    return total


@pytest.fixture(scope="module", autouse=True)
def as_well_as_before(server: Served, photo: bytes):
    """The same processes answer afterwards, and have not grown by a picture."""
    assert server.photo(photo).status == 200
    before, mib = sorted(children(server.process.pid)), resident(server)
    yield
    assert server.photo(photo).status == 200
    assert sorted(children(server.process.pid)) == before
    assert resident(server) < mib + 60
    assert server.metric('face3d_queue_length{stage="infer"}') == 0


def test_there_are_sixty():
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", CASES)
def test_a_bad_request_gets_its_status(server: Served, name: str):
    status, send = CASES[name]
    answer = send(server)
    assert answer.status == status, answer.body[:300]
    assert answer.is_problem, answer.body[:300]
    assert server.ask("GET", "/healthz").status == 200


def test_a_client_that_sends_on_after_a_refusal_still_gets_it(server: Served):
    """Not a reset, which is what closing a socket with unread bytes would be."""
    body = bytes((4 << 20) + 1)
    for _ in range(5):
        assert server.photo(body).status == 413


def test_a_connection_survives_a_small_refusal(server: Served):
    from http.client import HTTPConnection

    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(3):
        connection.request("POST", "/v1/coeffs", CROP + b"x", {"Content-Type": RAW})
        link = connection.sock
        response = connection.getresponse()
        assert response.status == 400
        response.read()
        assert connection.sock is link
    connection.close()
