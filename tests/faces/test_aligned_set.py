from __future__ import annotations

import csv

import pytest
from PIL import Image

from face3d_trt.errors import CalibrationError, StorageError, UsageError
from face3d_trt.faces.aligned_set import SetOptions, make_set
from face3d_trt.faces.collect import collect_faces
from face3d_trt.faces.images import read_image


@pytest.fixture
def photos(tmp_path, portrait, crops):
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    Image.fromarray(portrait).save(folder / "a.jpg")
    Image.fromarray(crops[0]).save(folder / "sub/b.png")
    Image.fromarray(crops[1]).save(folder / "sub/b.webp", lossless=True)
    (folder / "sub/c, d.jpg").write_bytes(b"")
    return folder


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_set_is_what_the_photos_give(tmp_path, photos, template):
    written, skipped = make_set(SetOptions(photos, tmp_path / "set", template))
    assert (written, [each.name for each in skipped]) == (3, ["sub/c, d.jpg"])
    assert files(tmp_path / "set").keys() == {"a.png", "sub/b.png.png", "sub/b.webp.png", "skipped.csv"}
    again = collect_faces(tmp_path / "set", None, "aligned")
    assert again.fingerprint == collect_faces(photos, template).fingerprint
    with open(tmp_path / "set/skipped.csv", encoding="utf-8", newline="") as file:
        header, row = csv.reader(file)
    assert (header, row[0]) == (["file", "reason"], "sub/c, d.jpg")
    assert "empty" in row[1]


def test_a_second_run_changes_nothing_and_completes_what_is_missing(tmp_path, photos, template):
    options = SetOptions(photos, tmp_path / "set", template)
    make_set(options)
    first = files(tmp_path / "set")
    (tmp_path / "set/sub/b.png.png").unlink()
    assert make_set(options)[0] == 3
    assert files(tmp_path / "set") == first


def test_sets_are_not_mixed(tmp_path, photos, template, crops):
    target = tmp_path / "set"
    target.mkdir()
    Image.fromarray(crops[2]).save(target / "other.png")
    with pytest.raises(CalibrationError, match=r"other\.png.*not mixed") as caught:
        make_set(SetOptions(photos, target, template))
    assert f"rm -r {target}" in str(caught.value)
    assert list(files(target)) == ["other.png"]
    (target / "other.png").rename(target / "a.png")
    with pytest.raises(CalibrationError, match=r"another a\.png"):
        make_set(SetOptions(photos, target, template))


def test_what_a_photo_or_a_lower_limit_no_longer_gives_is_not_left_behind_silently(tmp_path, photos, template):
    make_set(SetOptions(photos, tmp_path / "set", template))
    with pytest.raises(CalibrationError, match=r"2 pictures that this run did not make, such as sub/b\.png\.png"):
        make_set(SetOptions(photos, tmp_path / "set", template, limit=1))
    (photos / "a.jpg").write_bytes(b"")
    with pytest.raises(CalibrationError, match=r"1 pictures that this run did not make, such as a\.png"):
        make_set(SetOptions(photos, tmp_path / "set", template))


def test_without_a_face_nothing_is_written(tmp_path, template):
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("RGB", (300, 300)).save(photos / "dark.png")
    with pytest.raises(CalibrationError, match=r"dark\.png: no face found"):
        make_set(SetOptions(photos, tmp_path / "set", template))
    assert not (tmp_path / "set").exists()


def test_the_target_is_a_folder_outside_the_source(tmp_path, photos, template):
    for target in (photos, photos / "set"):
        with pytest.raises(UsageError, match="lies inside"):
            make_set(SetOptions(photos, target, template))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        make_set(SetOptions(photos, tmp_path / "file", template))


def test_a_target_that_cannot_be_made_is_a_storage_error(tmp_path, photos, template):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        make_set(SetOptions(photos, tmp_path / "file/set", template))


def test_an_interrupted_write_leaves_no_half_picture(tmp_path, photos, template, monkeypatch):
    save = Image.Image.save

    def interrupted(self, path, **options):
        save(self, path, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Image.Image, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_set(SetOptions(photos, tmp_path / "set", template))
    assert files(tmp_path / "set") == {}


def test_one_photo_makes_a_set_of_one(tmp_path, photos, template):
    assert make_set(SetOptions(photos / "a.jpg", tmp_path / "set", template)) == (1, ())
    assert read_image(tmp_path / "set/a.png").shape == (224, 224, 3)
