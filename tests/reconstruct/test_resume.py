"""Runs that end before their time, in every way there is, and what --resume makes of them."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.reconstruct.conftest import Finished, run
from tests.reconstruct.mixed import write_video
from tests.tiny import write_tiny

from face3d_trt.errors import StorageError, UsageError

PICTURES = 120
ARGUMENTS = ("--save", "coeffs", "--devices", "cpu", "--workers", "2", "--queue", "4", "--detector", "aligned")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph that takes no time."""
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.onnx", layout="uint8")


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, crops: np.ndarray) -> Path:
    """Crops as PNG files, and between them some that no crop is in."""
    folder = tmp_path_factory.mktemp("faces")
    for index in range(PICTURES):
        if index % 10 == 9:
            (folder / f"{index:03}.png").write_text("none")
        else:
            Image.fromarray(crops[index % 8]).save(folder / f"{index:03}.png", compress_level=1)
    return folder


@pytest.fixture(scope="module")
def whole(faces: Path, plan: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """What a run gives that nobody disturbs."""
    return run(tmp_path_factory.mktemp("whole") / "out", plan, faces, detector="aligned")


def start(faces: Path, plan: Path, output: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "face3d_trt", "reconstruct", str(faces), "-o", str(output), "--plan", str(plan)]
    return subprocess.Popen(
        [*command, *ARGUMENTS, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def await_lines(process: subprocess.Popen[str], output: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if (output / "results.jsonl").read_bytes().count(b"\n") > count:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.002)
    pytest.fail(f"the run ended, or wrote nothing: {process.communicate()}")


def test_killed_twice_and_resumed_every_picture_is_there_once(faces, plan, whole, tmp_path):
    output, lines = tmp_path / "out", 0
    for attempt in range(2):
        process = start(faces, plan, output, *(["--resume"] if attempt else []))
        await_lines(process, output, lines + 5 + 20 * attempt)
        process.kill()
        process.communicate()
        lines = len((output / "results.jsonl").read_bytes().splitlines())
    assert lines < PICTURES
    resumed = run(output, plan, faces, detector="aligned", resume=True)
    assert resumed.tree() == whole.tree()
    assert resumed.summary.here < PICTURES


def test_workers_do_not_outlive_a_killed_run(faces, plan, tmp_path):
    process = start(faces, plan, tmp_path / "out")
    await_lines(process, tmp_path / "out", 1)
    children = [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(children) >= 3
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(_runs(child) for child in children):
        time.sleep(0.02)
    assert not any(_runs(child) for child in children)


def _runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ctrl_c_ends_what_is_on_its_way_and_says_how_to_go_on(faces, plan, whole, tmp_path):
    process = start(faces, plan, tmp_path / "out")
    await_lines(process, tmp_path / "out", 3)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in error
    assert not (tmp_path / "out" / ".work").exists()
    names = [json.loads(each)["name"] for each in (tmp_path / "out" / "results.jsonl").read_text().splitlines()[1:]]
    assert names == sorted(names)
    assert {each.name for each in (tmp_path / "out").iterdir() if each.is_dir()} <= set(names)
    assert run(tmp_path / "out", plan, faces, detector="aligned", resume=True).tree() == whole.tree()


def test_a_full_disk_stops_the_run_and_the_rest_is_done_later(faces, plan, whole, tmp_path):
    """A file-size limit, set once the run is going, gives the error of a full disk at the next write."""
    process = start(faces, plan, tmp_path / "out")
    await_lines(process, tmp_path / "out", 3)
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        resource.prlimit(int(child), resource.RLIMIT_FSIZE, (100, 100))
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot write" in error
    assert "--resume" in error
    assert not list((tmp_path / "out").rglob(".work"))
    assert run(tmp_path / "out", plan, faces, detector="aligned", resume=True).tree() == whole.tree()


def test_torn_lines_and_missing_files_are_mended(faces, plan, whole, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(whole.output, output)
    results = output / "results.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    shutil.rmtree(output / "003.png")
    next((output / "005.png").iterdir()).write_bytes(b"short")
    results.write_bytes(b"".join(lines[:-2]) + lines[-2][:30])
    mended = run(output, plan, faces, detector="aligned", resume=True)
    assert mended.summary.here == 4  # two whose files are gone, two whose lines are
    assert mended.tree() == whole.tree()


def test_pictures_that_came_later_take_their_place(faces, plan, tmp_path, crops):
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("b.png", "d.png"):
        Image.fromarray(crops[0]).save(folder / name)
    run(tmp_path / "out", plan, folder)
    for name in ("a.png", "c.png"):
        Image.fromarray(crops[1]).save(folder / name)
    assert list(run(tmp_path / "out", plan, folder, resume=True).records()) == ["a.png", "b.png", "c.png", "d.png"]


def test_frames_of_an_earlier_run_are_counted_once(astronaut, plan, tmp_path):
    photo = np.asarray(Image.open(astronaut).resize((256, 256)))
    write_video(tmp_path / "film.avi", [photo, photo])
    Image.fromarray(photo).save(tmp_path / "still.png")
    seen = []
    for resume in (False, True):
        found = run(tmp_path / "out", plan, tmp_path, resume=resume)
        seen.append((found.summary.counts, found.summary.status.total))
    assert seen == [({"done": 3}, 3)] * 2


def test_a_run_takes_photos_with_or_without_a_slash_and_refuses_a_file_for_a_folder(faces, plan, tmp_path):
    run(tmp_path / "out", plan, f"{faces}/", detector="aligned")
    assert run(tmp_path / "out", plan, faces, detector="aligned", resume=True).summary.here == 0
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        run(tmp_path / "file", plan, faces, detector="aligned")


def test_two_runs_do_not_share_a_list(tmp_path):
    from face3d_trt.reconstruct.resume import results_of

    listed = tmp_path / "list.jsonl"
    with results_of(listed, tmp_path / "one", {}, resume=False):
        with pytest.raises(StorageError, match="another run"), results_of(listed, tmp_path / "two", {}, resume=True):
            raise AssertionError
        assert listed.read_bytes().count(b"\n") == 1


def test_what_is_there_is_not_written_over(faces, plan, whole):
    before = whole.tree()
    with pytest.raises(UsageError, match="holds results already"):
        run(whole.output, plan, faces, detector="aligned")
    with pytest.raises(UsageError, match="with faces largest; now it is all"):
        run(whole.output, plan, faces, detector="aligned", faces="all", resume=True)
    assert whole.tree() == before


def test_a_line_is_written_when_those_before_it_are(tmp_path):
    from face3d_trt.reconstruct.resume import ResultList

    (tmp_path / "list").write_bytes(b"run\n")
    results = ResultList(tmp_path / "list")
    for number in (2, 1, 4):
        results.put(number, b"%d\n" % number)
    assert (tmp_path / "list").read_bytes() == b"run\n"
    results.put(0, b"0\n")
    assert (tmp_path / "list").read_bytes() == b"run\n0\n1\n2\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12, hard))
    try:
        with pytest.raises(Exception, match="cannot write"):
            results.put(3, b"three\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "list").read_bytes() == b"run\n0\n1\n2\n"  # not half a line
    results.close()
