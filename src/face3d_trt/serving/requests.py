"""Bodies of requests: read into memory that was set aside for them, in time, or refused before they are read."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from face3d_trt.serving.problems import Problem
from face3d_trt.serving.sink import KEY, Sink

if TYPE_CHECKING:
    from starlette.requests import Request

_MOST_NAME = 100  # characters of a file's name, which is only ever shown
_HEADERS_OF_A_PART = 8


class Part(NamedTuple):
    """One file of a form.

    Attributes:
        name: A label: no path, no control characters.
        data: The content.
    """

    name: str
    data: bytes


def media_type(request: Request) -> str:
    """Of the body, without parameters; empty if none is given."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def body_length(request: Request, most: int, allowed: str) -> int:
    """Bytes of the body, as its header says.

    Raises:
        Problem: 411 where it does not say, 400 where there is no body, 413 where it is larger than `most`.
    """
    text = request.headers.get("content-length")
    if text is None:
        raise Problem(411, "the body's length is not known beforehand", allowed="a Content-Length header")
    if not re.fullmatch(r"\d{1,18}", text):
        raise Problem(400, "Content-Length is not a number")
    length = int(text)
    if length == 0:
        raise Problem(400, "the body is empty", allowed=allowed)
    if length > most:
        raise Problem(413, f"the body has {length:,} bytes", allowed=f"up to {most:,}")
    return length


async def read_into(request: Request, target: memoryview, seconds: float) -> None:
    """Read a body of exactly `len(target)` bytes, as `body_length` has found.

    Raises:
        Problem: 408 where it does not come in time, 400 where it ends early.
        GoneError: The client has left.
    """
    sink: Sink = request.scope["state"][KEY]
    try:
        with anyio.fail_after(seconds):
            await sink.fill(target)
    except TimeoutError:
        told = f"{sink.at:,} of {len(target):,} bytes came within {seconds:g} s"
        raise Problem(408, told, allowed=f"the body within {seconds:g} s") from None
    if sink.at != len(target):  # never: but what lies in the rest is another client's
        raise Problem(400, f"{sink.at:,} of {len(target):,} bytes came")


def parse_form(data: bytes, content_type: str, most: int) -> list[Part]:
    """The files of a multipart/form-data body; other fields are passed over.

    Raises:
        Problem: 400 where it is malformed, has no file, or more than `most`.
    """
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise Problem(400, "the form's Content-Type has no boundary")
    form = _Form(most, parse_options_header)
    try:
        parser = MultipartParser(boundary, callbacks=form.callbacks())  # type: ignore[arg-type]  # theirs: a TypedDict
        parser.write(data)
        parser.finalize()
    except FormParserError as error:
        raise Problem(400, f"the form is malformed: {error}") from error
    if not form.whole:
        raise Problem(400, "the form is cut off: its last boundary is missing")
    if not form.parts:
        raise Problem(400, "the form has no file", allowed="one part with a filename for each picture")
    return form.parts


class _Form:
    """Collects the files as python-multipart finds them."""

    def __init__(self, most: int, options_of: Any) -> None:
        self.parts: list[Part] = []
        self.whole = False
        self._most, self._options_of = most, options_of
        self._content: list[bytes] = []
        self._name: str | None = None
        self._field, self._value, self._headers = b"", b"", 0

    def callbacks(self) -> dict[str, object]:
        """For the parser."""
        return {
            "on_part_begin": self._begin,
            "on_part_data": lambda data, start, end: self._content.append(data[start:end]),
            "on_part_end": self._end,
            "on_header_field": self._on_field,
            "on_header_value": self._on_value,
            "on_header_end": self._header,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._content, self._name, self._headers = [], None, 0

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self._headers += 1
        if self._headers > _HEADERS_OF_A_PART:
            raise Problem(400, "a part of the form has too many headers")
        if self._field.lower() == b"content-disposition":
            _, options = self._options_of(self._value)
            if (name := options.get(b"filename")) is not None:
                self._name = label(name.decode("utf-8", "replace"))
        self._field, self._value = b"", b""

    def _end(self) -> None:
        if self._name is None:
            return
        if len(self.parts) == self._most:
            raise Problem(400, f"the form has more than {self._most} files", allowed=f"up to {self._most}")
        self.parts.append(Part(self._name, b"".join(self._content)))

    def _finish(self) -> None:
        self.whole = True


def label(name: str) -> str:
    """What may be shown of the name that a client gives a file: its last part, printable, short."""
    last = re.split(r"[/\\]", name)[-1]
    shown = "".join(character for character in last if not unicodedata.category(character).startswith("C")).strip()
    return shown[:_MOST_NAME] or "picture"
