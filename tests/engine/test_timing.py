"""Measurements between builds: where they are kept, and that they never cost a build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.tiny import Recorder

from face3d_trt.engine import flavour as module
from face3d_trt.engine.flavour import Flavour, find_flavour
from face3d_trt.engine.timing import Timings, default_path, open_timings
from face3d_trt.errors import StorageError
from face3d_trt.files import output_lock
from face3d_trt.records import Gpu

H200 = Gpu(name="NVIDIA H200 / 141GB", compute_capability="9.0", driver="580.159")


@pytest.fixture
def flavour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Flavour:
    """With a timing cache, as TensorRT has one on a GPU."""
    pytest.importorskip("tensorrt_rtx", reason="the extra rtx is not installed")
    monkeypatch.setattr(module, "visible_gpus", lambda: ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return replace(find_flavour(), name="tensorrt", version="8.6.0", has_timing_cache=True, gpu=H200)


def _lose(ours: bytes, theirs: bytes) -> bytes:
    raise AssertionError("nobody else wrote")


def test_each_gpu_driver_and_version_has_a_file_of_its_own(flavour: Flavour, tmp_path: Path) -> None:
    path = default_path(flavour)
    assert path.parent == tmp_path / "cache" / "face3d-trt" / "timing"
    assert path.name == "NVIDIA-H200-141GB_9.0_driver-580.159_tensorrt-8.6.0.cache"
    others = [
        replace(flavour, version="10.1"),
        *(replace(flavour, gpu=H200.model_copy(update={name: "x"})) for name in type(H200).model_fields),
    ]
    assert len({path, *map(default_path, others)}) == 1 + len(others)


def test_home_is_where_the_specification_says(
    flavour: Flavour, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for unset in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert default_path(flavour).parents[2] == tmp_path / "home" / ".cache"


def test_what_one_build_measures_the_next_one_finds(flavour: Flavour) -> None:
    report = Recorder()
    first = open_timings(None, flavour, report)
    assert first.data == b""
    first.keep(b"measured", _lose, report)
    assert open_timings(None, flavour, report).data == b"measured"
    assert report.warnings == []
    assert [path.name for path in default_path(flavour).parent.iterdir()] == [default_path(flavour).name]


def test_two_builds_at_once_lose_nothing(flavour: Flavour) -> None:
    report = Recorder()
    first, second = (open_timings(None, flavour, report) for _ in range(2))
    first.keep(b"a", _lose, report)
    second.keep(b"b", lambda ours, theirs: theirs + ours, report)
    assert open_timings(None, flavour, report).data == b"ab"


def test_none_and_rtx_keep_nothing(flavour: Flavour, tmp_path: Path) -> None:
    report = Recorder()
    for timings in (
        open_timings("none", flavour, report),
        open_timings(None, replace(flavour, has_timing_cache=False), report),
    ):
        assert timings == Timings(None, None)
        timings.keep(None, _lose, report)
    assert not (tmp_path / "cache").exists()


def test_an_unusable_cache_folder_is_a_warning_and_an_unusable_file_an_error(
    flavour: Flavour, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    report = Recorder()
    assert open_timings(None, flavour, report) == Timings()
    assert len(report.warnings) == 1
    assert "--timing-cache FILE" in report.warnings[0]
    with pytest.raises(StorageError):
        open_timings(tmp_path / "file" / "mine.cache", flavour, report)


def test_what_cannot_be_kept_is_a_warning(flavour: Flavour, tmp_path: Path) -> None:
    report = Recorder()
    mine = open_timings(tmp_path / "mine.cache", flavour, report)
    with output_lock(tmp_path / "mine.cache"):
        mine.keep(b"measured", _lose, report)
    (tmp_path / "mine.cache").mkdir()
    mine.keep(b"measured", _lose, report)
    assert len(report.warnings) == 2
    assert all("The plan is there" in text for text in report.warnings)
