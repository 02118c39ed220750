"""Two machines: one makes the typed graph, the other has TensorRT and neither onnx nor ModelOpt nor torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from tests.tiny import CONVOLUTIONS, Recorder, write_crops, write_tiny

from face3d_trt.engine import flavour as flavours
from face3d_trt.engine.build import BuildOptions, build_engine
from face3d_trt.engine.profile import Profile
from face3d_trt.engine.typed import named_for, write_typed
from face3d_trt.errors import GraphError, MissingError, UsageError
from face3d_trt.graph.precision import float32_path
from face3d_trt.records import Manifest, TypedRecord, manifest_path

TWO = (
    Profile.parse("min=1x3x224x224,opt=1x3x224x224,max=4x3x224x224"),
    Profile.parse("min=1x3x224x224,opt=16x3x224x224,max=32x3x224x224"),
)
BLOCKED = ("onnx", "modelopt", "torch", "scipy", "onnx_graphsurgeon", "onnxruntime", "cv2", "PIL", "polygraphy")


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorrt_rtx", reason="the extra rtx is not installed")
    monkeypatch.setattr(flavours, "visible_gpus", lambda: ())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An int8 graph and its record, alone in a folder, as they are copied to the other machine."""
    here = tmp_path_factory.mktemp("here")
    source = write_tiny(here / "face.onnx")
    options = BuildOptions(onnx=source, precision="int8", calibration=write_crops(here / "calib", 3))
    write_typed(options, "rtx")
    there = tmp_path_factory.mktemp("there")
    for name in ("face.int8.onnx", "face.int8.onnx.json"):
        shutil.copy(here / name, there)
    return there / "face.int8.onnx"


@pytest.fixture
def typed(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.parent, tmp_path / "there")) / made.name


def test_a_plan_is_built_where_the_frameworks_are_absent(typed: Path) -> None:
    program = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ImportError(f"{{name}} is not on this machine")
sys.meta_path.insert(0, Blocker())
from face3d_trt.cli import main
sys.argv = ["face3d-trt", "build", "--typed", {str(typed)!r}]
sys.argv += ["--profile", {str(TWO[0])!r}, "--profile", {str(TWO[1])!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    manifest = Manifest.read(manifest_path(typed.with_suffix(".plan")))
    assert manifest.precision == "int8"
    assert manifest.convolutions == {"int8": CONVOLUTIONS - 1, "fp16": 1}
    assert [profile.opt[0] for profile in manifest.profiles] == [1, 16]
    assert manifest.calibration is not None
    assert manifest.typed == typed.name
    assert manifest.onnx == "face.onnx"  # as it is called where it lies
    assert manifest.model.source == "tiny"
    assert f"--typed {typed}" in manifest.command
    assert manifest.plan_bytes == typed.with_suffix(".plan").stat().st_size


def test_both_ways_give_the_same_content(typed: Path, made: Path) -> None:
    """A plan of the same typed graph is reused, whichever way it was asked for."""
    first = build_engine(BuildOptions(from_typed=typed))
    report = Recorder()
    assert build_engine(BuildOptions(from_typed=typed), report) == first
    assert [text.split()[0] for text in report.stages] == ["reused"]
    other = typed.parent / "plans" / "other.plan"
    second = build_engine(BuildOptions(from_typed=typed, output=other))
    assert second.fingerprint == first.fingerprint
    assert second.typed == "../face.int8.onnx"


@pytest.mark.parametrize(
    ("generation", "strongly", "opset", "types"),
    [("8.6", False, 17, {"fp32"}), ("10", True, 19, {"fp16"}), ("11", True, 19, {"fp16"}), ("rtx", True, 19, {"fp16"})],
)
def test_the_graph_is_of_the_kind_that_its_tensorrt_takes(
    tmp_path: Path, generation: str, strongly: bool, opset: int, types: set[str]
) -> None:
    options = BuildOptions(onnx=write_tiny(tmp_path / "face.onnx"), precision="fp16")
    record = write_typed(options, generation)
    assert (record.strongly_typed, record.opset) == (strongly, opset)
    assert record.model is not None
    assert record.model.source == "tiny"
    assert TypedRecord.read(tmp_path / "face.fp16.onnx.json") == record
    model = onnx.load(tmp_path / "face.fp16.onnx")
    assert [each.version for each in model.opset_import if each.domain == ""] == [opset]
    assert set(record.nodes) == types
    assert not (tmp_path / "face.fp16.plan").exists()


def test_without_a_generation_it_is_the_tensorrt_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BuildOptions(onnx=write_tiny(tmp_path / "face.onnx"), precision="fp32")
    assert write_typed(options).strongly_typed
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    with pytest.raises(MissingError) as caught:
        write_typed(options)
    assert "--for 8.6, 10, 11, rtx" in str(caught.value)
    with pytest.raises(UsageError, match="no such TensorRT"):
        write_typed(options, "9")


def test_a_graph_for_another_tensorrt_is_refused_with_the_command(
    tmp_path: Path, typed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BuildOptions(onnx=write_tiny(tmp_path / "face.onnx"), precision="fp16")
    write_typed(options, "8.6")
    with pytest.raises(UsageError) as caught:
        build_engine(BuildOptions(from_typed=options.typed))
    assert "leaves its precision to flags" in caught.value.problem
    assert "--fp16 --typed-only --for rtx" in caught.value.run
    old = replace(flavours.find_flavour(), name="tensorrt", version="8.6.0", takes=flavours.FLAGS)
    monkeypatch.setattr("face3d_trt.engine.build.find_flavour", lambda report: old)
    with pytest.raises(UsageError) as caught:
        build_engine(BuildOptions(from_typed=typed))
    assert "its own types decide" in caught.value.problem
    assert "--for 8.6" in caught.value.run


def test_a_changed_graph_and_a_missing_or_old_record_are_told_apart(typed: Path) -> None:
    record = typed.with_name(typed.name + ".json")
    facts = json.loads(record.read_text())
    for change, words in (
        (lambda: record.write_text(json.dumps({**facts, "model": None})), "knows nothing of the model"),
        (lambda: record.write_text("{}"), "is not a TypedRecord"),
        (lambda: record.unlink(), "face.int8.onnx.json is missing"),
        (lambda: (record.write_text(json.dumps(facts)), typed.write_bytes(b"x")), "is not the graph that"),
        (lambda: typed.unlink(), "face.int8.onnx is missing"),
    ):
        change()
        with pytest.raises(GraphError) as caught:
            build_engine(BuildOptions(from_typed=typed))
        assert words in caught.value.problem
        assert "--typed-only" in str(caught.value.run)
        assert not typed.with_suffix(".plan").exists()


def test_a_record_of_before_is_completed_where_the_graph_was_made(tmp_path: Path) -> None:
    options = BuildOptions(onnx=write_tiny(tmp_path / "face.onnx"), precision="fp32")
    now = write_typed(options, "rtx")
    before = {key: value for key, value in now.model_dump().items() if key not in ("model", "strongly_typed", "opset")}
    (tmp_path / "face.fp32.onnx.json").write_text(json.dumps(before))
    report = Recorder()
    assert write_typed(options, "rtx", report) == now
    assert [text.split()[0] for text in report.stages] == ["reused"]


@pytest.mark.parametrize(
    ("output", "typed"),
    [
        (None, "face.int8.onnx"),
        ("a.plan", "a.int8.onnx"),
        ("a.int8.plan", "a.int8.onnx"),
        ("a.int8.trt86.plan", "a.int8.trt86.onnx"),
        ("a.int8.mine.plan", "a.int8.mine.int8.onnx"),
    ],
)
def test_names_follow_from_each_other(output: str | None, typed: str) -> None:
    options = BuildOptions(onnx=Path("face.onnx"), precision="int8", output=Path(output) if output else None)
    assert options.typed == Path(typed)
    assert BuildOptions(from_typed=options.typed).plan == Path(typed).with_suffix(".plan")


def test_a_graph_for_another_tensorrt_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever that one is not what builds here; a machine without any builds nothing, and its names do not differ."""
    options = BuildOptions(onnx=Path("face.onnx"), precision="int8")

    def names() -> list[str]:
        return [named_for(options, generation).typed.name for generation in ("8.6", "10", "rtx")]

    assert names() == ["face.int8.trt86.onnx", "face.int8.onnx", "face.int8.onnx"]
    assert float32_path(Path("engines/face.int8.trt86.onnx")) == Path("engines/face.onnx")
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    assert names() == ["face.int8.trt86.onnx", "face.int8.onnx", "face.int8.onnx"]
    old = SimpleNamespace(takes=flavours.FLAGS)
    monkeypatch.setattr("face3d_trt.engine.typed.find_flavour", lambda: old)
    assert names() == ["face.int8.onnx", "face.int8.trt10.onnx", "face.int8.trt10.onnx"]
    assert named_for(options, None) is options
