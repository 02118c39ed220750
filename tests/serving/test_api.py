"""What a client gets is what the engine and the rest of the package compute."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import subprocess
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from face3d_trt import open_engine
from face3d_trt.faces.align import align
from face3d_trt.faces.detect import Mtcnn, main_face
from face3d_trt.faces.images import read_image
from face3d_trt.faces.tensor import to_input
from face3d_trt.names import GROUPS

if TYPE_CHECKING:
    from tests.serving.served import Served


@pytest.fixture(scope="module")
def engine(exported: Path):
    with open_engine(exported, on="cpu") as opened:
        yield opened


def coeffs_of(engine, crops: np.ndarray) -> np.ndarray:
    return engine(to_input(crops, engine.inputs[0].dtype))["coeffs"]


def test_crops_give_what_the_engine_gives(server: Served, engine, many_crops):
    expected = coeffs_of(engine, many_crops[:5])
    answer = server.crops(many_crops[:5].tobytes())
    assert (answer.status, answer.headers["x-shape"]) == (200, "5,257")
    np.testing.assert_allclose(np.frombuffer(answer.body, "<f4").reshape(5, 257), expected, atol=1e-4)
    told = server.crops(many_crops[:5].tobytes(), accept="application/json").json()
    assert told["shape"] == [5, 257]
    np.testing.assert_allclose(told["coeffs"], expected, atol=1e-4)


def test_the_photo_gives_its_face(server: Served, engine, photo, astronaut):
    answer = server.photo(photo)
    assert answer.status == 200, answer.body
    (image,) = answer.json()["images"]
    (face,) = image["faces"]
    pixels = read_image(astronaut)
    seen = main_face(Mtcnn().detect(pixels, "it"))
    expected = coeffs_of(engine, align(pixels, seen.points, engine.model.template).crop[None])[0]
    assert (image["width"], image["height"], image["faces_found"]) == (512, 512, 1)
    np.testing.assert_allclose(face["box"], seen.box)
    np.testing.assert_allclose(face["points"], seen.points, atol=0.01)
    for name, part in GROUPS.items():
        np.testing.assert_allclose(face["coefficients"][name], expected[part], atol=1e-3)
    eyes = np.mean(np.array(face["landmarks"])[36:48], axis=0)  # of the 68 points, these are around the eyes
    assert np.linalg.norm(eyes - seen.points[:2].mean(axis=0)) < 0.2 * (seen.box[2] - seen.box[0])
    assert set(image["seconds"]) == {"find", "infer", "make"}


def test_several_pictures_in_a_form_with_one_that_has_no_face(server: Served, photo, many_crops):
    import httpx
    from PIL import Image

    plain, crop = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (300, 200), "green").save(plain, "PNG")
    Image.fromarray(many_crops[0]).save(crop, "PNG")
    parts = [("../a.png", photo), ("b.png", plain.getvalue()), ("c.png", crop.getvalue())]
    request = httpx.Request("POST", server.url, files=[("image", each) for each in parts])
    answer = server.photo(request.read(), kind=request.headers["content-type"])
    first, second, third = answer.json()["images"]
    assert [first["name"], second["name"], third["name"]] == ["a.png", "b.png", "c.png"]
    assert (second["problem"]["status"], second["faces"]) == (422, [])
    assert third["faces"][0]["box"] is None  # an aligned crop is not searched
    np.testing.assert_allclose(
        np.concatenate(list(third["faces"][0]["coefficients"].values())),
        np.frombuffer(server.crops(many_crops[0].tobytes()).body, "<f4"),
        atol=1e-4,
    )
    alone = server.photo(plain.getvalue())
    assert alone.is_problem
    assert alone.status == 422


def test_mesh_and_texture_come_as_files(server: Served, photo):
    import trimesh
    from PIL import Image

    answer = server.photo(photo, "?mesh=glb")
    (file,) = answer.json()["images"][0]["faces"][0]["files"]
    mesh = trimesh.load(io.BytesIO(base64.b64decode(file["base64"])), file_type="glb", force="mesh")
    assert file["media_type"] == "model/gltf-binary"
    assert len(mesh.vertices) > 1000
    zipped = server.photo(photo, "?mesh=obj&texture=png&texture_size=257", Accept="application/zip")
    with zipfile.ZipFile(io.BytesIO(zipped.body)) as archive:
        folder = "image-0/face-0/"
        assert {name.removeprefix(folder) for name in archive.namelist()} == {
            "face.obj", "face.mtl", "face.png", "result.json",
        }  # fmt: skip
        assert Image.open(archive.open(f"{folder}face.png")).size == (257, 257)
        lines = archive.read(f"{folder}face.obj").decode().splitlines()
        assert sum(line.startswith("v ") for line in lines) == len(mesh.vertices)
        assert json.loads(archive.read("result.json"))["images"][0]["faces"][0]["files"][0]["path"].startswith(folder)


def _soon(ask, wanted, seconds=10.0):
    end = time.monotonic() + seconds
    while (found := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return found == wanted


def test_every_outcome_and_batch_is_counted(server: Served, many_crops):
    before = {name: server.metric(name) for name in ("face3d_batch_size_sum", 'face3d_images_total{outcome="done"}')}
    server.crops(many_crops[:7].tobytes())
    for name, value in before.items():
        assert _soon(lambda name=name: server.metric(name), value + 7)  # engines count when the answer has gone
    assert server.metric('face3d_queue_capacity{stage="infer"}') == 16
    assert server.metric('face3d_queue_length{stage="infer"}') == 0
    assert server.metric("face3d_replicas_ready") == 1


def test_monitor_shows_a_server(server: Served):
    from face3d_trt.monitor.watch import WatchOptions, opened, states

    with opened(WatchOptions(url=server.url, interval_s=0.1)) as (source, _):
        progress = next(iter(states(source, 0.1))).progress
    assert progress.batched > 0
    assert progress.stages["infer"].capacity == 16


def test_the_readme_curl_lines_work(server: Served, root: Path, astronaut: Path, tmp_path: Path):
    section = (root / "README.md").read_text().partition("## Serve it over HTTP")[2].partition("\n## ")[0]
    lines = re.findall(r"^curl (?:.*\\\n)*.*", section, re.MULTILINE)
    assert len(lines) >= 2
    (tmp_path / "face.png").write_bytes(astronaut.read_bytes())
    for line in lines:
        command = shlex.split(line.replace("\\\n", " ").partition("  #")[0])
        command = [word.replace("http://127.0.0.1:8080", server.url) for word in command]
        done = subprocess.run([*command, "--fail", "-sS"], cwd=tmp_path, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, (line, done.stderr)
    assert zipfile.is_zipfile(tmp_path / "face.zip")


def test_the_python_lines_of_the_document_work(server: Served, root: Path):
    (code,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "serving.md").read_text(), re.DOTALL)
    names: dict[str, np.ndarray] = {}
    exec(code.replace("http://127.0.0.1:8080", server.url), names)
    assert names["coeffs"].shape == (4, 257)
