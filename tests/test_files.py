"""What stands under a final name is whole, and what cannot be written is said by name."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from face3d_trt.errors import StorageError
from face3d_trt.files import check_output, output_lock, storage_errors, write_beside, write_text, write_together


@contextmanager
def _disk_of(size: int) -> Iterator[None]:
    """A limit on file size stands in for the full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_files_that_belong_together_all_stay_as_they_were_when_one_does_not_fit(tmp_path: Path) -> None:
    plan, manifest = tmp_path / "a.plan", tmp_path / "a.plan.json"
    write_together([(plan, b"old plan"), (manifest, b"old manifest")])
    with _disk_of(1000), pytest.raises(StorageError, match="what stood there before is untouched"):
        write_together([(plan, b"new plan"), (manifest, bytes(2000))])
    assert (plan.read_bytes(), manifest.read_bytes()) == (b"old plan", b"old manifest")
    assert len(list(tmp_path.iterdir())) == 2
    write_together([(plan, b"new plan"), (manifest, b"new manifest")])
    assert (plan.read_bytes(), manifest.read_bytes()) == (b"new plan", b"new manifest")


def test_a_full_disk_with_nothing_there_before_leaves_nothing(tmp_path: Path) -> None:
    with _disk_of(1000), pytest.raises(StorageError, match="nothing was left under that name"):
        write_text(tmp_path / "a.json", "x" * 2000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "long", "below a file", "loop"])
def test_an_impossible_output_is_found_out_beforehand(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out.json"
    if kind == "folder":
        path.mkdir()
        (path / "precious").write_text("mine")
    elif kind == "long":
        path = tmp_path / ("n" * 300 + ".json")
    elif kind == "below a file":
        (tmp_path / "file").write_text("")
        path = tmp_path / "file" / "out.json"
    else:
        (tmp_path / "loop").symlink_to("loop")
        path = tmp_path / "loop" / "out.json"
    before = sorted(tmp_path.rglob("*"))
    for write in (check_output, lambda path: write_text(path, "text")):
        with pytest.raises(StorageError) as caught:
            write(path)
        assert str(path) in caught.value.problem
    assert sorted(tmp_path.rglob("*")) == before


def test_a_possible_output_is_left_as_it_is(tmp_path: Path) -> None:
    check_output(tmp_path / "new" / "er" / "a.plan")
    assert list(tmp_path.iterdir()) == []
    write_text(tmp_path / "b", "text")
    check_output(tmp_path / "b")
    assert (tmp_path / "b").read_text() == "text"


@pytest.mark.parametrize("around", [write_beside, storage_errors])
def test_what_cannot_be_read_meanwhile_is_not_said_to_be_unwritable(tmp_path: Path, around) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("")
    with pytest.raises(NotADirectoryError), around(tmp_path / "out" / "a"):
        (tmp_path / "in" / "file" / "picture.png").read_bytes()
    with pytest.raises(IsADirectoryError), around(tmp_path / "out" / "a"):
        (tmp_path / "in").read_bytes()


def test_one_holds_an_output_at_a_time_and_leaves_no_trace(tmp_path: Path) -> None:
    plan = tmp_path / "a.plan"
    seen: list[str] = []

    def other() -> None:
        try:
            with output_lock(plan):
                seen.append("in")
        except StorageError as error:
            seen.append(error.problem)

    with output_lock(plan):
        for _ in range(2):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        with output_lock(tmp_path / "b.plan"):
            pass
    assert len(seen) == 2
    assert all("another build of it is running" in text for text in seen)
    assert list(tmp_path.iterdir()) == []
    other()
    assert seen[-1] == "in"
    (tmp_path / f".{plan.name}.lock").touch()  # a killed process leaves it; its lock went with it
    other()
    assert seen[-2:] == ["in", "in"]


def test_permissions_are_those_of_a_plain_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_folder_that_cannot_be_made_is_a_storage_error_everywhere(tmp_path):
    """`mkdir` in /proc says "no such file", which is about our own path all the same."""
    with pytest.raises(StorageError), storage_errors(Path("/proc/nowhere/model")):
        Path("/proc/nowhere").mkdir(parents=True)
