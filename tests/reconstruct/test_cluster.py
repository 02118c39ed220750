"""Runs over a Ray cluster. What runs on the nodes is tried without Ray too; with it, in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from tests.reconstruct.conftest import COEFFS, run
from tests.reconstruct.mixed import write_video
from tests.tiny import write_tiny

from face3d_trt import __version__
from face3d_trt.errors import MissingError, StoppedError, UsageError
from face3d_trt.monitor.limits import Limits
from face3d_trt.reconstruct.cluster.attempts import attempt
from face3d_trt.reconstruct.cluster.job import check_options, group_size, job_of, runs_on_cpu
from face3d_trt.reconstruct.cluster.nodes import Node, joined, look_at
from face3d_trt.reconstruct.cluster.parcels import Parcel
from face3d_trt.reconstruct.cluster.steps import EngineActor, Workshop, describe_engine
from face3d_trt.reconstruct.engines import EngineSetup
from face3d_trt.reconstruct.finish import Prepared
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.messages import Ready
from face3d_trt.reconstruct.options import ReconstructOptions
from face3d_trt.reconstruct.sources import Item, find_items

if TYPE_CHECKING:
    from face3d_trt.reconstruct.cluster.parcels import Job

RAY = all(importlib.util.find_spec(name) for name in ("ray", "pyarrow", "pandas"))
needs_ray = pytest.mark.skipif(not RAY, reason="ray[data] is not installed: make test-ray")
TWO_CPUS = (Node("a", "one", 2, 0),)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph that takes no time."""
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.onnx", layout="uint8")


def options(*sources: Path | str, output: Path = Path("out"), **more) -> ReconstructOptions:
    return ReconstructOptions(tuple(map(str, sources)), output, **({"products": COEFFS} | more))


def job(plan: Path, output: Path, **more) -> Job:
    ready = describe_engine(EngineSetup(plan, CPU, 1))
    assert isinstance(ready, Ready)
    return job_of(options("photos", output=output, **more), plan, None, ready, TWO_CPUS, on_cpu=True)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_steps_of_a_node_give_what_one_machine_gives(plan, crops, tmp_path):
    """Prepare, infer, finish by hand, on crops of two kinds and something else."""
    (tmp_path / "in").mkdir()
    for index in range(3):
        Image.fromarray(crops[index]).save(tmp_path / "in" / f"{index}.png")
    (tmp_path / "in" / "bad.png").write_text("none")
    np.save(tmp_path / "in" / "rows.npy", crops[:5])
    expected = run(tmp_path / "one", plan, tmp_path / "in", detector="aligned")
    this = job(plan, tmp_path / "many", detector="aligned")
    items = find_items((str(tmp_path / "in"),), tmp_path / "many", rows=256, arrays=True)
    parcels = [found for item in items for found in Workshop.of(this).prepare(Parcel(item))]
    EngineActor(this).infer(parcels)
    lines = [Workshop.of(this).finish(parcel).line.decode() for parcel in parcels]
    assert lines == [f"{text}\n" for text in expected.lines()[1:]]
    assert tree(tmp_path / "many") == {name: text for name, text in expected.tree().items() if name != "results.jsonl"}


def test_frames_that_are_done_are_not_made_again(astronaut, plan, tmp_path):
    photo = np.asarray(Image.open(astronaut).resize((256, 256)))
    video = write_video(tmp_path / "film.avi", [photo, photo, photo])
    this = job(plan, tmp_path / "out")
    parcel = Parcel(Item("film.avi", str(video), "video"), skip=frozenset({0, 1}))
    frame, whole = Workshop.of(this).prepare(parcel)
    assert frame.item.name == "film.avi/000002"
    assert isinstance(frame.outcome, Prepared)
    assert json.loads(whole.line) == {"name": "film.avi", "status": "video", "frames": 3, "announced": 3}


def test_a_picture_is_blamed_when_two_attempts_ended_at_it(tmp_path):
    """Attempts whose process dies never come to their end; the first does not yet say where it was."""

    def dies(at: str) -> frozenset[str]:
        this = attempt(tmp_path, "prepare", ("a", "b", "c")).__enter__()
        if at not in this.fatal:
            this.at(at)
        return this.fatal

    assert [dies("b"), dies("b"), dies("b")] == [frozenset()] * 3
    with attempt(tmp_path, "finish", ("a", "b", "c")) as other:
        assert not other.fatal
    with attempt(tmp_path, "prepare", ("a", "b", "c")) as last:
        assert last.fatal == {"b"}
    with attempt(tmp_path, "prepare", ("a", "b", "c")) as again:  # one that ended well: nobody is to blame
        assert not again.fatal


def test_an_engine_that_never_comes_to_infer_stops_the_run(plan, tmp_path):
    """Each time it is opened and dies before a batch, a mark is left; a batch that went well takes its own away."""
    this = job(plan, tmp_path / "out")
    good = EngineActor(this)
    parcel = Parcel(Item("a", "a"), crops=np.zeros((3, 224, 224, 3), np.uint8))
    good.infer([parcel])
    assert parcel.stop is None
    assert parcel.coeffs.shape == (3, 257)
    for _ in range(6):
        last = EngineActor(this)
    last.infer([parcel])
    assert isinstance(parcel.stop, StoppedError)
    assert "again and again" in parcel.stop.problem


def test_a_node_that_sees_other_files_says_so(tmp_path):
    mark, plan = tmp_path / "shared-1", tmp_path / "plan"
    assert "not the same folder" in look_at(str(mark), "1", {}, __version__)
    mark.write_text("1")
    plan.write_bytes(b"12345")
    assert look_at(str(mark), "1", {str(plan): 5}, __version__) == ""
    assert "another file" in look_at(str(mark), "1", {str(plan): 6}, __version__)
    assert "is not there" in look_at(str(mark), "1", {str(tmp_path / "photos"): -1}, __version__)
    assert "other content" in look_at(str(mark), "2", {}, __version__)
    assert __version__ in look_at(str(mark), "1", {}, "0.0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan", "shared-1"]


@pytest.mark.parametrize("more", [{"devices": "0"}, {"workers": 2}, {"queue": 9}, {"limits": Limits(memory=0.9)}])
def test_what_ray_decides_is_no_option(more):
    with pytest.raises(UsageError, match="--ray"):
        check_options(options("photos", **more))


def test_a_cluster_has_to_hold_an_engine_and_something_beside(tmp_path):
    assert not runs_on_cpu(options("photos"), (Node("a", "one", 4, 1),))
    assert runs_on_cpu(options("photos", devices="cpu"), (Node("a", "one", 4, 1),))
    with pytest.raises(MissingError, match="1 CPUs"):
        runs_on_cpu(options("photos"), (Node("a", "one", 1, 0),))
    sizes = [group_size(options("photos", detector="aligned"), count, 8) for count in (10, 1000, 100_000, 1_000_000)]
    assert sizes == [1, 32, 64, 245]  # everyone gets some; 4,096 tasks at most


def test_an_address_of_a_client_is_refused():
    with pytest.raises(UsageError, match="on a node"), joined("ray://head:10001"):
        pass


@pytest.mark.skipif(RAY, reason="ray is installed")
def test_without_ray_the_command_that_installs_it_is_named():
    with pytest.raises(MissingError, match="ray") as caught, joined("auto"):
        pass
    assert caught.value.run is not None
    assert "pip install" in caught.value.run
    assert caught.value.exit_code == 3


@needs_ray
@pytest.mark.slow
def test_a_mixed_folder_and_a_video_give_the_files_of_one_machine(mixed, astronaut, exported, tmp_path):
    photo = np.asarray(Image.open(astronaut).resize((256, 256)))
    write_video(tmp_path / "film.avi", [photo, np.zeros_like(photo), photo])
    words = [sys.executable, "-m", "face3d_trt", "reconstruct", str(mixed[0]), str(tmp_path / "film.avi")]
    words += ["--plan", str(exported), "--devices", "cpu", "--texture-size", "256", "--save", "coeffs,mesh,texture"]
    for name, more in (("one", []), ("many", ["--ray", "local"])):
        done = subprocess.run([*words, "-o", str(tmp_path / name), *more], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "many") == tree(tmp_path / "one")


@needs_ray
@pytest.mark.slow
def test_the_run_and_a_node_are_killed_and_every_picture_is_there_once(plan, root, tmp_path):
    words = [sys.executable, str(root / "tools" / "ray_proof.py"), "--plan", str(plan), "--out", str(tmp_path / "out")]
    done = subprocess.run([*words, "--images", "60"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads((tmp_path / "out" / "results.json").read_text())
    assert facts["lines"] == 60
    assert facts["outcomes"] == {"done": 58, "failed": 2}
    assert facts["files"] == 59
    assert facts["whole"]
