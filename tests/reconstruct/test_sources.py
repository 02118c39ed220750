"""What a source gives, and under which names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.reconstruct.gpus import CPU, find_devices
from face3d_trt.reconstruct.options import ReconstructOptions, whole_number
from face3d_trt.reconstruct.sources import find_items


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def names(*sources: str | Path, output: Path = Path("out"), arrays: bool = False) -> list[str]:
    return [item.name for item in find_items(tuple(map(str, sources)), output, rows=4, arrays=arrays)]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_gives_everything_in_it_but_hidden_files_and_the_results(place):
    touch(*(place / "photos" / name for name in ("b.jpg", "a.JPG", "sub/a.png", ".hidden.jpg", ".x/c.jpg", "notes")))
    touch(place / "photos" / "out" / "a.jpg" / "a.png")
    assert names("photos", output=Path("photos/out")) == ["a.JPG", "b.jpg", "notes", "sub/a.png"]


def test_results_of_any_run_are_no_source(place):
    touch(*(place / "in" / name for name in ("a.jpg", "old/a.jpg/a.overlay.jpg", "kept/b.jpg", "kept/results.jsonl")))
    (place / "in" / "old" / "results.jsonl").write_text('{"run":{"version":"1"}}\n')
    assert names("in", output=Path("new")) == ["a.jpg", "kept/b.jpg", "kept/results.jsonl"]
    assert names("in/old", output=Path("new")) == ["a.jpg/a.overlay.jpg", "_results.jsonl"]  # asked for
    assert names("in/**/*.jpg", output=Path("in/old")) == ["in/a.jpg", "in/kept/b.jpg"]


def test_no_picture_takes_the_place_of_the_list_or_of_what_is_being_written(place):
    touch(*(place / name for name in (".work/a.jpg", "results.jsonl/a.jpg")))
    assert names(".work/a.jpg", "results.jsonl/a.jpg") == ["_.work/a.jpg", "_results.jsonl/a.jpg"]


def test_names_of_several_sources_cannot_collide(place):
    touch(*(place / name for name in ("one/a.jpg", "two/a.jpg", "two/a.png", "a.jpg")))
    found = names("one", "two", "a.jpg", "one/a.jpg", place / "two" / "a.png")
    assert found == ["one/a.jpg", "two/a.jpg", "two/a.png", "a.jpg", str(place / "two" / "a.png")[1:]]
    touch(place / "_" / "a.jpg", place.parent / "a.jpg")
    assert names("_/a.jpg", "../a.jpg") == ["_/a.jpg", "_/a.jpg~2"]
    assert names("a.jpg", "./a.jpg", "a.jpg") == ["a.jpg"]


def test_globs_and_lists_name_files(place):
    touch(*(place / "in" / name for name in ("x/1.jpg", "x/2.jpg", "3.png")))
    assert names("in/**/*.jpg") == ["in/x/1.jpg", "in/x/2.jpg"]
    (place / "in" / "order.txt").write_text("x/2.jpg\n\n3.png\nmissing.jpg\n")
    found = find_items(("in/order.txt",), Path("out"), rows=4, arrays=False)
    assert [(item.name, Path(item.path)) for item in found] == [
        ("x/2.jpg", Path("in/x/2.jpg")),
        ("3.png", Path("in/3.png")),
        ("missing.jpg", Path("in/missing.jpg")),  # it will be recorded as one that cannot be read
    ]
    for wrong in ("nowhere", "in/*.gif"):
        with pytest.raises(UsageError, match=r"nowhere|nothing fits"):
            names(wrong)


def test_arrays_are_cut_into_blocks_whose_bytes_are_where_they_are_said_to_be(place):
    crops = np.random.default_rng(0).integers(0, 256, (9, 8, 6, 3), np.uint8)
    np.save("a.npy", crops)
    np.savez("b.npz", one=crops[:5], two=crops[5:])
    np.savez_compressed("c.npz", crops)
    np.save("d.npy", crops[..., :2])
    items = find_items(("a.npy", "b.npz", "c.npz", "d.npy"), Path("out"), rows=4, arrays=True)
    blocks = [item for item in items if item.kind == "rows"]
    assert [item.name for item in blocks] == [
        *(f"a.npy/{part}" for part in ("00000000-00000004", "00000004-00000008", "00000008-00000009")),
        *(f"b.npz/{part}" for part in ("one/00000000-00000004", "one/00000004-00000005", "two/00000000-00000004")),
    ]
    read = []
    for item in blocks:
        data = Path(item.path).read_bytes()[item.offset : item.offset + item.count * 8 * 6 * 3]
        read.append(np.frombuffer(data, np.uint8).reshape(-1, 8, 6, 3))
    assert np.array_equal(np.concatenate(read), np.concatenate([crops, crops]))
    assert ["compressed" in item.reason or "not crops" in item.reason for item in items if item.kind == "not"] == [
        True
    ] * 2


def test_devices_are_those_that_are_there():
    assert find_devices("cpu") == (CPU,)
    assert find_devices("cpu,cpu") == (CPU, CPU)
    for wrong in ("gpu", "0,0", "0,cpu", "", "-1"):
        with pytest.raises(UsageError, match="--devices"):
            find_devices(wrong)
    with pytest.raises(MissingError, match="no GPU 99"):
        find_devices("99")


def test_an_option_goes_before_the_environment_and_a_bad_value_is_named():
    environment = {"FACE3D_BATCH_SIZE": "16"}
    assert whole_number("--batch", 4, "FACE3D_BATCH_SIZE", environment) == 4
    assert whole_number("--batch", None, "FACE3D_BATCH_SIZE", environment) == 16
    assert whole_number("--batch", None, "FACE3D_BATCH_SIZE", {}) is None
    for wrong in ("0", "-3", "many", "1.5"):
        with pytest.raises(UsageError, match="FACE3D_BATCH_SIZE is"):
            whole_number("--batch", None, "FACE3D_BATCH_SIZE", {"FACE3D_BATCH_SIZE": wrong})
    with pytest.raises(UsageError, match="--workers 0"):
        ReconstructOptions(("a",), Path("out"), workers=0)
    with pytest.raises(UsageError, match="--detector landmarks needs"):
        ReconstructOptions(("a",), Path("out"), detector="landmarks")
