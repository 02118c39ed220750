from __future__ import annotations

import json

import numpy as np
import pytest

from face3d_trt.errors import FaceError, UsageError
from face3d_trt.faces.detect import detector
from face3d_trt.faces.landmarks import read_landmarks

FIVE = [[10.5, 20], [30, 20], [20, 30], [12, 40], [28, 40]]
IMAGE = np.zeros((60, 60, 3), np.uint8)


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_json_and_csv_say_the_same(tmp_path):
    row = "b/a.jpg," + ",".join(str(value) for point in FIVE for value in point)
    header = "file,x1,y1,x2,y2,x3,y3,x4,y4,x5,y5\n"
    as_json = read_landmarks(write(tmp_path / "a.json", {"b/a.jpg": FIVE}))
    for text in (row, header + row, "\ufeff" + header + row + "\n\n"):
        as_csv = read_landmarks(write(tmp_path / "a.csv", text))
        assert list(as_csv) == list(as_json) == ["b/a.jpg"]
        assert np.array_equal(as_csv["b/a.jpg"], as_json["b/a.jpg"])
    assert np.array_equal(as_json["b/a.jpg"], FIVE)


def test_points_follow_a_picture_that_was_shrunk(tmp_path):
    (face,) = detector("landmarks", write(tmp_path / "a.json", {"a.jpg": FIVE})).detect(IMAGE, "a.jpg", 0.5)
    # The centre of the first 2x2 px of the file, (0.5, 0.5), is the centre of the first px of the half picture.
    assert np.allclose((face.points - 0) * 2, np.array(FIVE) - 0.5)


def test_bare_names_serve_subfolders_but_only_one_picture(tmp_path):
    points = detector("landmarks", write(tmp_path / "a.json", {"a.jpg": FIVE, "y/b.jpg": FIVE}))
    assert len(points.detect(IMAGE, "x/a.jpg")) == 1
    assert len(points.detect(IMAGE, "x/a.jpg")) == 1
    assert len(points.detect(IMAGE, "y/b.jpg")) == 1
    with pytest.raises(FaceError, match=r"x/a\.jpg has taken already"):
        points.detect(IMAGE, "z/a.jpg")
    with pytest.raises(FaceError, match=r"no points for x/b\.jpg"):
        points.detect(IMAGE, "x/b.jpg")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.json", "{'a': 1}", "is not JSON"),
        ("a.json", "", "is not JSON"),
        ("a.json", [FIVE], "not a JSON object"),
        ("a.json", {}, "holds no points"),
        ("a.json", {"a.jpg": FIVE[:4]}, r"shape \(4, 2\) under a.jpg"),
        ("a.json", {"a.jpg": [[1, 2, 3]] * 5}, r"shape \(5, 3\) under a.jpg"),
        ("a.json", {"a.jpg": [[1, 2], [3]]}, "five points of two numbers under a.jpg"),
        ("a.json", {"a.jpg": {"left_eye": [1, 2]}}, "under a.jpg"),
        ("a.json", {"a.jpg": [[1, None]] * 5}, "not finite under a.jpg"),
        ("a.json", '{"a.jpg": [[1, NaN], [1, 2], [1, 2], [1, 2], [1, 2]]}', "not finite under a.jpg"),
        ("a.json", f'{{"a.jpg": {FIVE}, "a.jpg": {FIVE}}}', "names a.jpg twice"),
        ("a.csv", "a.jpg,1,2,3", "4 columns in line 1 instead of 11"),
        ("a.csv", "file,x\na.jpg,1,2,3,4,5,6,7,8,9,ten", "other than numbers in line 2"),
        ("a.csv", "a.jpg,1,2,3,4,5,6,7,8,9,inf", "not finite under a.jpg"),
        ("a.csv", "a.jpg,1,2,3,4,5,6,7,8,9,10\na.jpg,1,2,3,4,5,6,7,8,9,10", "names a.jpg twice"),
        ("a.csv", "", "holds no points"),
    ],
)
def test_every_malformed_file_is_named_with_its_entry(tmp_path, name, content, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        read_landmarks(write(tmp_path / name, content))
    assert str(tmp_path / name) in str(caught.value)
    assert "left eye, right eye, nose" in str(caught.value)


def test_a_missing_or_binary_file_is_told(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_landmarks(tmp_path / "none.json")
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_landmarks(tmp_path / "a.json")
