"""What a stranger may try: addresses, sizes, plans, and two at once."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.tiny import write_tiny

from face3d_trt.faces.samples import sample_crops
from face3d_trt.ui.work import PhotoWork

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.ui.conftest import Page

    Body = bytes | Iterable[bytes] | None

ROOT = Path(__file__).resolve().parents[2]


def ask(page: Page, method: str, path: str, body: Body = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(page.url).netloc, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read()


def command(*words: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    program = f"{code}\nimport sys\nsys.argv[0] = 'face3d-trt'\nfrom face3d_trt.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program, "ui", *words],
        env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_page_asks_nothing_of_other_hosts(page: Page) -> None:
    status, text = ask(page, "GET", "/")
    assert status == 200
    config = json.loads(ask(page, "GET", "/config")[1])
    assert not config["analytics_enabled"]
    assert b"fonts.googleapis.com" not in text + ask(page, "GET", "/theme.css")[1]


def test_a_large_body_is_refused_before_it_is_read(page: Page) -> None:
    status, _ = ask(page, "POST", "/gradio_api/upload", None, Content_Length=str(1 << 34))
    assert status == 413
    before = page.left()
    endless = (bytes(1 << 20) for _ in range(16))
    try:
        status, _ = ask(page, "POST", "/gradio_api/queue/join", endless, Content_Type="application/json")
    except OSError:  # it hung up
        status = 400
    assert status >= 400
    assert page.left() == before
    assert ask(page, "GET", "/config")[0] == 200


def test_a_photo_by_its_address_or_path_is_not_fetched(page: Page) -> None:
    config = json.loads(ask(page, "GET", "/config")[1])
    before = page.left()
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.5)
        for path in (f"http://127.0.0.1:{elsewhere.getsockname()[1]}/a.jpg", "/etc/passwd", "../../../etc/passwd"):
            for function in config["dependencies"]:  # the photo's, and the examples'
                data = {"path": path, "url": path, "meta": {"_type": "gradio.FileData"}}
                call = {"data": [data], "fn_index": function["id"], "session_hash": "stranger"}
                status, _ = ask(
                    page, "POST", "/gradio_api/queue/join", json.dumps(call).encode(), Content_Type="application/json"
                )
                if status == 200:
                    assert not _until_done(page, "stranger")["success"]
        with pytest.raises(TimeoutError):
            elsewhere.accept()
    assert page.left() == before
    for path in ("/etc/passwd", f"{Path.cwd()}/pyproject.toml", "face3d-ui/../../etc/passwd"):
        assert ask(page, "GET", f"/gradio_api/file={path}")[0] in (403, 404), path


def _until_done(page: Page, session: str) -> dict:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(page.url).netloc, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", f"/gradio_api/queue/data?session_hash={session}")
        with connection.getresponse() as answer:
            while line := answer.readline():
                if line.startswith(b"data:") and (told := json.loads(line[5:])).get("msg") == "process_completed":
                    return told  # type: ignore[no-any-return]
    raise AssertionError("no end")


def test_a_taken_port_is_named(page: Page, exported: Path) -> None:
    port = str(urllib.parse.urlsplit(page.url).port)
    ended = command(str(exported), "--port", port)
    assert ended.returncode == 2
    assert f"port {port}" in ended.stderr
    assert "--port 0" in ended.stderr


def test_what_is_missing_is_named(exported: Path, tmp_path: Path) -> None:
    ended = command(str(tmp_path / "none.plan"), "--port", "0")
    assert ended.returncode == 3
    assert "none.plan is not there" in ended.stderr

    ended = command(str(exported), "--port", "0", code="import sys\nsys.modules['gradio'] = None", TMPDIR=str(tmp_path))
    assert ended.returncode == 3
    assert "gradio" in ended.stderr
    assert "pip install" in ended.stderr
    assert list(tmp_path.iterdir()) == []

    tiny = write_tiny(tmp_path / "tiny.onnx", layout="uint8")  # no morphable model lies beside it
    ended = command(str(tiny), "--port", "0")
    assert ended.returncode == 3
    assert "tiny.face.npz" in ended.stderr


def test_two_at_once_get_what_each_gets_alone(exported: Path) -> None:
    from face3d_trt.reconstruct.products import encode_texture

    pictures = [encode_texture(crop, "png") for crop in sample_crops()[:4]]
    with PhotoWork(exported, 1_000_000) as work:
        alone = [work.run(each).files for each in pictures]
        ready = threading.Barrier(2)

        def both(order: list[int]) -> dict[int, dict[str, bytes]]:
            ready.wait()
            return {index: work.run(pictures[index]).files for index in order}

        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(both, ([0, 1, 2, 3], [3, 2, 1, 0])))
    for each in found:
        for index, files in each.items():
            assert {n: c for n, c in files.items() if n != "face.obj.zip"} == {
                n: c for n, c in alone[index].items() if n != "face.obj.zip"
            }
    assert len({files["face.glb"] for files in alone}) == 4
