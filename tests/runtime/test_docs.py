"""docs/runtime.md does what it says; here with the twin, in tests/gpu with the engine."""

from __future__ import annotations

import io
import json
import re
import shutil
import threading
import urllib.error
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.docblocks import RUNTIME, blocks, run_block
from tests.tiny import crops

import face3d_trt
from face3d_trt import errors
from face3d_trt.records import Manifest, manifest_path

NEEDS_GPU = {"Arrays on the GPU"}


@pytest.fixture
def home(float_plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the plan that the document opens, and no GPU to be seen: the twin is what runs."""
    (tmp_path / "engines").mkdir()
    plan = tmp_path / "engines" / "face3d_resnet50.fp16.plan"
    shutil.copy(float_plan, plan)
    shutil.copy(manifest_path(float_plan), manifest_path(plan))
    shutil.copy(float_plan.parent / Manifest.read(manifest_path(plan)).typed, plan.parent)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("face3d_trt.runtime.open.visible_gpus", lambda: ())
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("heading", [heading for heading in blocks() if heading not in NEEDS_GPU])
def test_the_block_runs(heading):
    run_block(heading)["engine"].close()


def test_only_what_needs_a_gpu_is_left_out():
    code = blocks()
    assert set(code) >= NEEDS_GPU
    assert {heading for heading in code if 'device="cuda"' in code[heading]} == NEEDS_GPU


@pytest.mark.usefixtures("home")
def test_the_service_answers():
    names = run_block("A service in twenty lines")
    picture = crops(1)[0]
    server = ThreadingHTTPServer(("127.0.0.1", 0), names["Reconstruct"])
    names["Reconstruct"].log_message = lambda *_: None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        found = json.loads(post(server, encode(picture)).read())
        exact = names["engine"](picture[None].transpose(0, 3, 1, 2).astype(np.float32) / 255)["coeffs"][0]
        assert np.allclose(found, exact, rtol=1e-4, atol=1e-5)
        for body, words in ((encode(picture[:100]), "fit no optimization profile"), (b"no picture", "cannot identify")):
            with pytest.raises(urllib.error.HTTPError) as caught:
                post(server, body)
            with caught.value as answer:
                assert answer.code == 400
                assert words in json.loads(answer.read())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        names["engine"].close()


def test_the_service_has_twenty_lines():
    """Of its own: without imports and the way to start it."""
    code = blocks()["A service in twenty lines"]
    service = code[code.index("class ") : code.index("if __name__")]
    assert len([line for line in service.splitlines() if line.strip()]) <= 20


def test_errors_are_those_that_the_runtime_raises():
    rows = re.findall(r"^\| (\w+Error) \|[^|]*\|([^|]*)\|", RUNTIME.read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {"InputError", "PlanError", "GraphError", "MissingError", "EngineError"}
    folder = Path(face3d_trt.__file__).parent / "runtime"
    source = "\n".join(file.read_text() for file in folder.glob("*.py"))
    for name, words in rows:
        assert issubclass(getattr(errors, name), errors.Face3DError)
        for phrase in re.findall(r"`([^`]+)`", words):
            assert phrase in source, phrase


def encode(picture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


def post(server: ThreadingHTTPServer, body: bytes):
    return urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}", data=body, timeout=30)
