"""Forms and names that clients send."""

from __future__ import annotations

import pytest

from face3d_trt.serving.problems import Problem
from face3d_trt.serving.requests import label, parse_form


def encoded(files: list[tuple[str, bytes]]) -> tuple[bytes, str]:
    """As another program writes it: httpx."""
    import httpx

    request = httpx.Request("POST", "http://x", files=[("image", (name, data)) for name, data in files])
    return request.read(), request.headers["content-type"]


def test_files_of_another_program_come_out_as_they_went_in():
    files = [("a.png", bytes(range(256)) * 50), ("b.jpg", b"\r\n--not the boundary\r\n"), ("empty", b"")]
    data, kind = encoded(files)
    assert [(part.name, part.data) for part in parse_form(data, kind, 3)] == files


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\face.png", "face.png"),
        ("/", "picture"),
        ("a\x00b\n\u202ec.png", "abc.png"),
        ("x" * 5000, "x" * 100),
        ("fête.png", "fête.png"),
    ],
)
def test_a_name_is_only_a_label(name, shown):
    assert label(name) == shown


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda data, kind: (data[:-10], kind), 400),  # cut off
        (lambda data, kind: (data, "multipart/form-data"), 400),
        (lambda data, kind: (b"rubbish" + data, kind), 400),
        (lambda data, kind: (data.replace(b"filename", b"nothing0"), kind), 400),
        (lambda data, kind: (data.replace(b"\r\nContent", b"\r\nX: y" * 20 + b"\r\nContent", 1), kind), 400),
    ],
    ids=["cut off", "no boundary", "rubbish before", "no file", "many headers"],
)
def test_a_malformed_form_says_so(change, status):
    with pytest.raises(Problem) as told:
        parse_form(*change(*encoded([("a.png", b"x" * 100)])), 3)
    assert told.value.status == status


def test_a_form_with_too_many_files_is_refused():
    with pytest.raises(Problem, match="more than 2") as told:
        parse_form(*encoded([(f"{n}.png", b"x") for n in range(3)]), 2)
    assert told.value.status == 400
