"""A model repository on the disk: what is written, what is never replaced unasked, what is left when it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format
from tests.tiny import Recorder
from tests.triton.conftest import MakePlan, batches
from tritonclient.grpc import model_config_pb2
from typer.testing import CliRunner

from face3d_trt.cli import app
from face3d_trt.engine.inspect import inspect_plan
from face3d_trt.errors import Face3DError, PlanError, StorageError, UsageError
from face3d_trt.files import output_lock, sha256_file
from face3d_trt.records import Manifest, manifest_path
from face3d_trt.triton import staging
from face3d_trt.triton.options import TritonOptions
from face3d_trt.triton.repository import write_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "models"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def put(repository: Path, *plans: Path, **options: object) -> Recorder:
    report = Recorder()
    write_repository(TritonOptions(repository, plans, **options), report)
    return report


def config(repository: Path, model: str = "face"):
    text = (repository / model / "config.pbtxt").read_text()
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_two_plans_are_two_models(make: MakePlan, repository):
    plans = make("face.fp16.plan"), make("mesh.int8.plan", mesh=True)
    put(repository, *plans)
    assert sorted(tree(repository)) == [
        f"{model}/{file}"
        for model in ("face.fp16", "mesh.int8")
        for file in ("1/model.plan", "1/model.plan.json", "config.pbtxt")
    ]
    for plan in plans:
        copy = repository / plan.stem / "1" / "model.plan"
        assert copy.read_bytes() == plan.read_bytes()
        assert config(repository, plan.stem).name == plan.stem  # Triton wants the folder's name there
        assert inspect_plan(copy).trouble is None  # what lies there is known as a plan of build
        assert copy.stat().st_mode & 0o444 == 0o444 & ~_umask()  # the server is another user
        assert copy.parent.stat().st_mode & 0o555 == 0o555 & ~_umask()


def test_the_next_version_lies_beside_the_former_which_stays(make: MakePlan, repository):
    put(repository, make())
    before = tree(repository / "face" / "1")
    report = put(repository, make(profiles=(batches(1, 2, 3),)))
    assert tree(repository / "face" / "1") == before
    assert config(repository).max_batch_size == 3
    assert any("is replaced: -max_batch_size: 8; +max_batch_size: 3" in each for each in report.warnings)
    assert any("beside version 1" in each for each in report.stages)
    assert put(repository, make(profiles=(batches(1, 2, 3),)), version=7).warnings == []
    put(repository, make())
    assert sorted(os.listdir(repository / "face")) == ["1", "2", "7", "8", "config.pbtxt"]


def test_a_version_is_replaced_only_when_asked(make: MakePlan, repository):
    put(repository, make())
    before = tree(repository)
    with pytest.raises(UsageError, match="has a version 1 already"):
        put(repository, make(profiles=(batches(1, 2, 3),)), version=1)
    assert tree(repository) == before
    put(repository, make(profiles=(batches(1, 2, 3),)), version=1, replace=True)
    assert config(repository).max_batch_size == 3
    assert len(Manifest.read(repository / "face" / "1" / "model.plan.json").profiles) == 1
    assert sorted(os.listdir(repository / "face")) == ["1", "config.pbtxt"]


def test_a_version_that_is_not_served_leaves_the_configuration_alone(make: MakePlan, repository):
    put(repository, make(), version=5)
    text = (repository / "face" / "config.pbtxt").read_bytes()
    report = put(repository, make(profiles=(batches(1, 2, 3),)), version=2)
    assert (repository / "face" / "config.pbtxt").read_bytes() == text
    assert any("will not serve version 2" in each for each in report.warnings)


def test_an_edited_configuration_stays_unless_asked(make: MakePlan, repository):
    put(repository, make())
    path = repository / "face" / "config.pbtxt"
    path.write_text(edited := path.read_text().replace("count: 1", "count: 3"))
    before = tree(repository)
    with pytest.raises(UsageError, match="was edited since"):
        put(repository, make())
    assert tree(repository) == before
    report = put(repository, make(), keep_config=True)
    assert path.read_text() == edited
    assert any("stays" in each and "count: 3" in each for each in report.warnings)
    put(repository, make(), replace=True)
    assert config(repository).instance_group[0].count == 1
    assert sorted(os.listdir(repository / "face")) == ["1", "2", "3", "config.pbtxt"]


def test_versions_that_are_served_together_want_one_configuration(make: MakePlan, repository):
    put(repository, make(), serve_versions=None)
    put(repository, make(), serve_versions=None)
    with pytest.raises(UsageError, match="version 1 of face wants another configuration"):
        put(repository, make(profiles=(batches(1, 2, 3),)), serve_versions=None)
    assert sorted(os.listdir(repository / "face")) == ["1", "2", "config.pbtxt"]
    (repository / "face" / "1" / "model.plan.json").unlink()
    report = put(repository, make(), serve_versions=3)
    assert any("has no manifest" in each for each in report.warnings)
    assert config(repository).version_policy.latest.num_versions == 3


def test_other_folders_of_a_model_are_no_versions(make: MakePlan, repository):
    for name in ("007", "0", "warmup", "2.bak", "-3"):
        (repository / "face" / name).mkdir(parents=True)
    put(repository, make())
    assert (repository / "face" / "1" / "model.plan").is_file()


def test_links_are_the_plan_itself_and_outlive_its_replacement(make: MakePlan, repository, tmp_path):
    plan = make()
    (tmp_path / "link.plan").symlink_to(plan)
    (tmp_path / "link.plan.json").symlink_to(manifest_path(plan))
    put(repository, tmp_path / "link.plan", link=True)
    copy = repository / "link" / "1" / "model.plan"
    assert copy.samefile(plan)
    assert not copy.is_symlink()  # whose target a container would not see
    was = sha256_file(copy)
    plan.unlink()
    make(mesh=True)
    assert sha256_file(copy) == was


def test_a_file_system_without_links_says_so(make: MakePlan, repository, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    plan = make()
    monkeypatch.setattr(staging.os, "link", refuse)
    with pytest.raises(StorageError, match="cannot link") as caught:
        put(repository, plan, link=True)
    assert "--link" in caught.value.run
    assert tree(repository) == {}


def test_plans_of_tensorrt_rtx_are_refused_by_name(rtx_float, repository):
    with pytest.raises(PlanError, match=r"a plan of TensorRT-RTX 1\.") as caught:
        put(repository, rtx_float)
    assert caught.value.run.startswith("face3d-trt build")
    assert not repository.exists()


def test_the_command_for_another_tensorrt_has_no_targets(make: MakePlan, repository):
    command = "face3d-trt build --fp16 --target 8.9 --target=12.0 -o 'my engines/a.plan'"
    with pytest.raises(PlanError) as caught:
        put(repository, make(flavour="tensorrt_rtx", command=command))
    assert caught.value.run.startswith("face3d-trt build --fp16 -o 'my engines/a.plan'    #")


def no_manifest(plan: Path) -> None:
    manifest_path(plan).unlink()


def changed(plan: Path) -> None:
    data = bytearray(plan.read_bytes())
    data[len(data) // 2] ^= 1
    plan.write_bytes(data)


def cut(plan: Path) -> None:
    os.truncate(plan, 1000)


def missing(plan: Path) -> None:
    plan.unlink()


@pytest.mark.parametrize("damage", [no_manifest, changed, cut, missing], ids=lambda each: each.__name__)
def test_nothing_is_written_where_one_plan_is_not_sound(make: MakePlan, repository, damage):
    good, bad = make("good.plan"), make("bad.plan")
    damage(bad)
    with pytest.raises(PlanError, match=r"bad\.plan"):
        put(repository, good, bad)
    assert not repository.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"names": ("a", "a")}, "would both be the model a"),
        ({"names": ("a",)}, "1 names for 2 plans"),
        *(
            ({"names": (name, "b")}, "is no name of a model")
            for name in ("", ".a", "../a", "a/b", "ä", "a" * 201, "-a")
        ),
        ({"version": 0}, "--version 0"),
        ({"version": 2**63}, "--version"),
        ({"deadline_s": -1.0}, "--deadline"),
        ({"replace": True, "keep_config": True}, "contradict"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        TritonOptions(Path("models"), (Path("x/a.plan"), Path("y/b.plan")), **options)


def test_two_plans_of_one_name_are_refused():
    with pytest.raises(UsageError, match=r"x/a\.plan and y/a\.plan would both be the model a"):
        TritonOptions(Path("models"), (Path("x/a.plan"), Path("y/a.plan")))


def test_files_in_the_way_are_named(make: MakePlan, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="file is not a folder"):
        put(tmp_path / "file", make())
    (tmp_path / "face").write_text("mine")
    with pytest.raises(UsageError, match="face is not a folder"):
        put(tmp_path, make())
    with pytest.raises(StorageError):
        put(tmp_path / "file" / "models", make())
    with pytest.raises(StorageError):
        put(Path("/proc/models"), make())
    assert (tmp_path / "face").read_text() == "mine"


def test_somebody_else_who_writes_the_same_model_is_not_disturbed(make: MakePlan, repository):
    with output_lock(repository / "face", "writing"), pytest.raises(StorageError, match="is running"):
        put(repository, make())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("first", [True, False])
def test_an_interrupted_copy_leaves_what_was_there(make: MakePlan, repository, monkeypatch, error, first):
    plan = make()
    if not first:
        put(repository, plan)
    before = tree(repository) if repository.exists() else {}

    def stop(_: int) -> None:
        raise error

    monkeypatch.setattr(staging.os, "fsync", stop)
    with pytest.raises((KeyboardInterrupt, StorageError)):
        put(repository, plan)
    assert tree(repository) == before
    assert sorted(os.listdir(repository)) == ([] if first else ["face"])
    if not first:
        assert sorted(os.listdir(repository / "face")) == ["1", "config.pbtxt"]


def test_a_failed_replacement_brings_the_former_version_back(make: MakePlan, repository, monkeypatch):
    put(repository, make())
    before = tree(repository)
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if Path(target).name == "1" and Path(source).name != "former":
            raise OSError(5, "Input/output error", str(target))
        rename(source, target)

    monkeypatch.setattr(staging.os, "rename", fail)
    with pytest.raises(StorageError):
        put(repository, make(profiles=(batches(1, 2, 3),)), version=1, replace=True)
    assert tree(repository) == before


def test_a_copy_that_is_killed_leaves_no_folder_that_triton_would_load(make: MakePlan, repository, tmp_path):
    plan = make()
    program = (
        "import os, signal, sys\nfrom face3d_trt.cli import app\nfrom face3d_trt.triton import staging\n"
        "staging.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"app(['triton', {str(repository)!r}, '--plan', {str(plan)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert [each for each in repository.iterdir() if each.is_dir()] == []
    put(repository, plan)
    assert sorted(os.listdir(repository)) == ["face"]  # the lock of who was killed is free


def test_what_a_killed_run_left_goes_with_the_next(make: MakePlan, repository):
    """A folder in the repository is a model to Triton, whatever its name."""
    left = repository / ".face.abcd_123"
    mine = repository / ".face.d"
    for folder in (left, mine):
        folder.mkdir(parents=True)
    put(repository, make())
    (repository / "face" / ".2.abcdefgh").write_bytes(b"half a plan")
    put(repository, make())
    assert sorted(os.listdir(repository)) == [".face.d", "face"]
    assert sorted(os.listdir(repository / "face")) == ["1", "2", "config.pbtxt"]


def test_the_command_says_what_triton_needs(make: MakePlan, repository):
    plain, wide = make("plain.plan"), make("wide.plan", version_compat=True, hardware_compat=True)
    line = ["triton", str(repository), "--plan", str(plain), "--plan", str(wide), "--group", "count=2,gpus=0"]
    done = CliRunner().invoke(app, [*line, "--max-wait", "2ms", "--preferred", "2,8", "--serve-versions", "all"])
    assert done.exit_code == 0, done.output
    assert "needs    TensorRT 10.13.3.9; a GPU of compute capability 9.0 (built on NVIDIA H200)" in done.stdout
    assert "TensorRT 10.13.3.9 or later, of the same major version; a GPU of Ampere or newer" in done.stdout
    assert f"-v {repository}:/models:ro" in done.stdout
    assert "--backend-config=tensorrt,version-compatible=true" in done.stdout
    batching = config(repository, "plain").dynamic_batching
    assert list(batching.preferred_batch_size) == [2, 8]
    assert batching.max_queue_delay_microseconds == 2000
    assert config(repository, "wide").instance_group[0].count == 2


@pytest.mark.parametrize(
    "option", [("--preferred", "a"), ("--serve-versions", "0"), ("--max-wait", "5"), ("--link=1",)]
)
def test_a_word_that_is_no_value_is_wrong_usage(make: MakePlan, repository, option):
    done = CliRunner().invoke(app, ["triton", str(repository), "--plan", str(make()), *option])
    assert done.exit_code == 2


def test_neither_protobuf_nor_any_framework_is_needed(make: MakePlan, repository):
    absent = ("google", "tritonclient", "grpc", "numpy", "torch", "onnx", "tensorrt", "tensorrt_rtx", "pycuda")
    program = (
        f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))\n"
        f"from face3d_trt.cli import app\napp(['triton', {str(repository)!r}, '--plan', {str(make())!r}])"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True)
    assert (repository / "face" / "1" / "model.plan").is_file()


def test_a_path_that_is_none_is_refused(make: MakePlan, tmp_path):
    with pytest.raises(Face3DError):
        put(tmp_path / ("x" * 300), make())


@pytest.mark.parametrize("odd", ["a\nb", " ", "größe"])
def test_an_odd_path_is_taken(make: MakePlan, tmp_path, odd):
    put(tmp_path / odd, make())
    assert config(tmp_path / odd).name == "face"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
