"""From the float32 graph to the plan, for real, with the flavour of this machine."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from tests.tiny import CONVOLUTIONS, Recorder, tiny_graph, write_crops, write_tiny

from face3d_trt.engine import build
from face3d_trt.engine import flavour as flavours
from face3d_trt.engine.build import BuildOptions, build_engine, prove
from face3d_trt.engine.inspect import inspect_plan
from face3d_trt.engine.profile import Profile
from face3d_trt.errors import BuildError, GraphError, ProfileError, StorageError, UsageError
from face3d_trt.files import output_lock
from face3d_trt.graph.counts import Tally
from face3d_trt.records import GateRecord, Manifest, TypedRecord, manifest_path

WIDE = Profile.parse("min=1x3x64x64,opt=4x3x256x256,max=16x3x1024x1024")


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builds here are TensorRT-RTX's, on GPU machines too; tests/gpu has TensorRT's."""
    pytest.importorskip("tensorrt_rtx", reason="the extra rtx is not installed")
    monkeypatch.setattr(flavours, "visible_gpus", lambda: ())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "engines" / "face.onnx")


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_all_precisions_build_from_a_mesh_graph(tmp_path: Path, precision: str) -> None:
    source = write_tiny(tmp_path / "mesh.onnx", outputs="mesh", layout="uint8")
    calib = write_crops(tmp_path / "calib", 4) if precision == "int8" else None
    options = BuildOptions(onnx=source, precision=precision, calibration=calib)  # type: ignore[arg-type]
    manifest = build_engine(options)
    plan = tmp_path / f"mesh.{precision}.plan"
    assert Manifest.read(manifest_path(plan)) == manifest
    assert manifest.plan_sha256 == _sha(plan)
    assert manifest.onnx_sha256 == _sha(source)
    assert manifest.typed_sha256 == _sha(tmp_path / manifest.typed)
    heads = 1 if precision == "int8" else 0  # which int8 leaves in fp16
    assert manifest.convolutions == {precision: CONVOLUTIONS - heads} | ({"fp16": heads} if heads else {})
    assert manifest.layers["fp32"] >= 9  # front and decode, in every precision
    assert [tensor.name for tensor in manifest.outputs] == ["coeffs", "vertex", "texture"]
    assert {tensor.dtype for tensor in manifest.outputs} == {"float32"}
    assert manifest.profiles[0].max == (32, 224, 224, 3)
    assert manifest.model.outputs == "mesh"
    assert (manifest.calibration is not None) == (precision == "int8")


def test_the_plan_is_raw_and_the_folder_holds_what_belongs_together(source: Path) -> None:
    build_engine(BuildOptions(onnx=source, precision="fp32"))
    assert sorted(path.name for path in source.parent.iterdir()) == [
        "face.fp32.onnx",
        "face.fp32.onnx.json",
        "face.fp32.plan",
        "face.fp32.plan.json",
        "face.onnx",
    ]
    assert (source.parent / "face.fp32.plan").read_bytes()[1:4] == b"trt"  # TensorRT's own magic, nothing before it


def test_options_reach_the_manifest_and_the_command_says_them_again(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "small.plan"
    options = BuildOptions(
        onnx=source, precision="fp32", profiles=(WIDE,), workspace=1 << 30, targets=("8.9", "8.6"), output=output
    )
    manifest = build_engine(options)
    assert manifest.targets == ("8.6", "8.9")
    assert manifest.workspace_bytes == 1 << 30
    assert manifest.profiles[0].opt == (4, 3, 256, 256)
    assert (output.parent / manifest.onnx).resolve() == source.resolve()
    assert manifest.typed == "small.fp32.onnx"
    for words in (f"--profile {WIDE}", "--target 8.6", f"-o {output}", "--fp32", "--workspace 1073741824"):
        assert words in manifest.command


def test_too_small_a_workspace_is_an_error_that_says_so(source: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build_engine(BuildOptions(onnx=source, precision="fp32", profiles=(WIDE,), workspace=1 << 20))
    assert "without --workspace" in str(caught.value.run)


def test_the_same_content_is_reused_and_other_options_are_built(source: Path) -> None:
    options = BuildOptions(onnx=source, precision="fp32")
    first = build_engine(options)
    plan = options.plan
    before = plan.stat().st_mtime_ns
    report = Recorder()
    assert build_engine(options, report) == first
    assert plan.stat().st_mtime_ns == before
    assert [text.split()[0] for text in report.stages] == ["reused", "reused"]
    again = build_engine(replace(options, profiles=(WIDE,)), report)
    assert again.fingerprint != first.fingerprint
    assert again.plan_sha256 == _sha(plan)


def test_another_graph_under_the_same_name_is_built(source: Path) -> None:
    options = BuildOptions(onnx=source, precision="fp32")
    first = build_engine(options)
    stamp = source.stat()
    onnx.save(tiny_graph(seed=3), source)
    os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # the date says nothing
    assert build_engine(options).plan_sha256 != first.plan_sha256


def test_a_plan_changed_by_hand_is_built_again_with_a_warning(source: Path) -> None:
    options = BuildOptions(onnx=source, precision="fp32")
    build_engine(options)
    with options.plan.open("ab") as file:
        file.write(b"x")
    report = Recorder()
    assert build_engine(options, report).plan_sha256 == _sha(options.plan)
    assert any("was changed since it was built" in text for text in report.warnings)


def test_a_moved_graph_is_found_from_the_manifest_again(source: Path, tmp_path: Path) -> None:
    plan = tmp_path / "engines" / "face.fp32.plan"
    build_engine(BuildOptions(onnx=source, precision="fp32", output=plan))
    moved = tmp_path / "graphs" / "other.onnx"
    moved.parent.mkdir()
    shutil.move(source, moved)
    report = Recorder()
    build_engine(BuildOptions(onnx=moved, precision="fp32", output=plan), report)
    assert any("reused" in text and "plan" in text for text in report.stages)
    assert (plan.parent / Manifest.read(manifest_path(plan)).onnx).resolve() == moved.resolve()


def test_the_same_network_in_other_bytes_is_in_the_manifest_of_a_reused_plan(source: Path) -> None:
    options = BuildOptions(onnx=source, precision="fp32")
    first = build_engine(options)
    model = onnx.load(source)
    model.graph.doc_string = "saved again"  # which the typed graph does not carry
    onnx.save(model, source)
    report = Recorder()
    second = build_engine(options, report)
    assert any(text.startswith("reused") and text.split()[1].endswith(".plan") for text in report.stages)
    assert second == Manifest.read(manifest_path(options.plan))
    assert second.plan_sha256 == first.plan_sha256
    assert second.onnx_sha256 == _sha(source) != first.onnx_sha256


def test_a_renamed_calibration_folder_is_named_by_both_records(source: Path, tmp_path: Path) -> None:
    options = BuildOptions(onnx=source, precision="int8", calibration=write_crops(tmp_path / "old", 3))
    build_engine(options)
    renamed = tmp_path / "new"
    (tmp_path / "old").rename(renamed)
    report = Recorder()
    manifest = build_engine(replace(options, calibration=renamed), report)
    assert [text.split()[0] for text in report.stages if not text.startswith("reading")] == ["reused", "reused"]
    record = TypedRecord.read(options.typed.with_name(options.typed.name + ".json"))
    assert manifest == Manifest.read(manifest_path(options.plan))
    for calibration in (manifest.calibration, record.calibration):
        assert calibration is not None
        assert Path(calibration.folder) == renamed
    assert f"--calib {renamed}" in manifest.command


def test_another_profile_under_another_name_does_not_calibrate_again(source: Path, tmp_path: Path) -> None:
    options = BuildOptions(onnx=source, precision="int8", calibration=write_crops(tmp_path / "calib", 3))
    first = build_engine(options)
    report = Recorder()
    second = build_engine(replace(options, profiles=(WIDE,), output=source.with_name("wide.plan")), report)
    assert not any(text.startswith("calibrating") for text in report.stages)
    assert second.typed_sha256 == first.typed_sha256 == _sha(source.with_name("wide.int8.onnx"))


class _Swapper(Recorder):
    """Once the typed graph is there, puts another in its place: what a second build of the same name would do."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def stage(self, text: str) -> None:
        super().stage(text)
        if text.startswith("reused"):
            onnx.save(tiny_graph(seed=7), self.path)


def test_a_graph_that_is_swapped_meanwhile_is_not_built(source: Path) -> None:
    options = BuildOptions(onnx=source, precision="fp32")
    build_engine(options)
    options.plan.unlink()
    with pytest.raises(GraphError, match="changed while it was being built"):
        build_engine(options, _Swapper(options.typed))
    assert not options.plan.exists()


def test_a_source_that_is_swapped_meanwhile_does_not_mix_its_facts(source: Path) -> None:
    """Facts of the model and graph are of the same bytes: here the facts are read before the swap, the graph after."""

    class Early(Recorder):
        def warn(self, text: str) -> None:
            onnx.save(tiny_graph(seed=7), source)

    options = BuildOptions(onnx=source, precision="fp32", calibration=source.parent)  # "left aside" is the moment
    with pytest.raises(GraphError, match="changed while it was being built"):
        build_engine(options, Early())
    assert not options.plan.exists()


@pytest.mark.parametrize("held", ["plan", "typed"])
def test_two_builds_of_the_same_output_do_not_mix(source: Path, held: str) -> None:
    options = BuildOptions(onnx=source, precision="fp32")
    with output_lock(getattr(options, held)), pytest.raises(StorageError, match="another build of it is running"):
        build_engine(options)
    assert not options.plan.exists()
    build_engine(options)


def test_two_builds_side_by_side_keep_their_warnings_apart(source: Path, tmp_path: Path) -> None:
    """TensorRT has one logger for the process; only the int8 build has something to say."""
    quiet, loud = Recorder(), Recorder()
    calib = write_crops(tmp_path / "calib", 2)
    jobs = [
        (BuildOptions(onnx=source, precision="fp32", profiles=(WIDE,)), quiet),
        (BuildOptions(onnx=source, precision="int8", calibration=calib, profiles=(WIDE,)), loud),
    ]
    with ThreadPoolExecutor(2) as pool:
        manifests = list(pool.map(lambda job: build_engine(*job), jobs))
    assert [manifest.convolutions for manifest in manifests] == [
        {"fp32": CONVOLUTIONS},
        {"int8": CONVOLUTIONS - 1, "fp16": 1},  # int8 leaves the head in fp16
    ]
    assert not any("scales to fp32" in text for text in quiet.warnings)


@pytest.mark.parametrize("name", ["face.fp32.plan", "face.fp32.plan.json", "face.fp32.onnx", "face.fp32.onnx.json"])
def test_an_output_that_is_a_folder_is_an_error_before_any_work(source: Path, name: str) -> None:
    (source.parent / name).mkdir()
    report = Recorder()
    with pytest.raises(StorageError, match="Is a directory"):
        build_engine(BuildOptions(onnx=source, precision="fp32"), report)
    assert report.stages == []
    assert sorted(path.name for path in source.parent.iterdir()) == sorted([name, "face.onnx"])


@pytest.mark.parametrize("kind", ["folder", "below a file"])
def test_an_unusable_timing_cache_is_an_error_before_any_work(
    source: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    cached = replace(flavours.find_flavour(), has_timing_cache=True)
    monkeypatch.setattr(build, "find_flavour", lambda report: cached)
    cache = source.parent / "cache"
    if kind == "folder":
        cache.mkdir()
    else:
        cache = source / "cache"
    report = Recorder()
    with pytest.raises(StorageError) as caught:
        build_engine(BuildOptions(onnx=source, precision="fp32", timing_cache=cache), report)
    assert str(cache) in caught.value.problem
    assert report.stages == []


def test_swapping_the_calibration_set_recalibrates_and_builds(source: Path, tmp_path: Path) -> None:
    calib = write_crops(tmp_path / "calib", 4)
    options = BuildOptions(onnx=source, precision="int8", calibration=calib)
    first = build_engine(options)
    shutil.rmtree(calib)
    write_crops(calib, 4, seed=8)
    report = Recorder()
    second = build_engine(options, report)
    assert second.calibration is not None
    assert first.calibration is not None
    assert second.calibration.fingerprint != first.calibration.fingerprint
    assert second.typed_sha256 != first.typed_sha256
    assert any("calibrated again" in text for text in report.stages)
    assert any(text.startswith("calibrating") for text in report.stages)


def test_tensorrts_repeated_warnings_are_shown_once(source: Path, tmp_path: Path) -> None:
    report = Recorder()
    build_engine(BuildOptions(onnx=source, precision="int8", calibration=write_crops(tmp_path / "c", 2)), report)
    spoken = [text for text in report.warnings if "scales to fp32" in text]
    assert len(spoken) == len(set(spoken)) <= 2
    assert all("said" in text for text in spoken)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_asking_for_a_precision_and_getting_none_is_an_error(precision: str) -> None:
    with pytest.raises(BuildError) as caught:
        prove(Tally({"fp32": 129}, {"fp32": 60}), precision)  # type: ignore[arg-type]
    assert f"0 of 60 convolutions in {precision}" in str(caught.value)
    report = Recorder()
    prove(Tally({}, {precision: 10, "fp32": 50}), precision, report)  # type: ignore[arg-type]
    assert any(f"only 10 of 60 convolutions in {precision}" in text for text in report.warnings)


def test_a_typed_graph_that_lost_its_precision_fails_before_it_is_built(source: Path) -> None:
    """The record vouches for an fp16 graph whose types are float32: what TensorRT finds in it decides."""
    options = BuildOptions(onnx=source, precision="fp16")
    build_engine(options)
    record_file = options.typed.with_name(options.typed.name + ".json")
    shutil.copy(source, options.typed)
    record = TypedRecord.read(record_file)
    record.model_copy(update={"sha256": _sha(options.typed)}).write(record_file)
    options.plan.unlink()
    with pytest.raises(BuildError, match="asked for fp16, and the graph has none"):
        build_engine(options)
    assert not options.plan.exists()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"timing_cache": Path("a.timing-cache")}, UsageError, "has no timing cache"),
        ({"targets": ("9.0",)}, UsageError, "--target 9.0"),
        ({"precision": "int8"}, UsageError, "--calib calibration/"),
        ({"output": Path("face.onnx")}, UsageError, "not a plan's name"),
        ({"onnx": Path("nowhere.onnx")}, GraphError, "nowhere.onnx is missing"),
        ({"profiles": (Profile.default("uint8"),)}, ProfileError, "(batch, 3, height, width)"),
        ({"profiles": (replace(WIDE, max=(16, 3, 2048, 64)),)}, ProfileError, "height from 64 to 1024"),
        ({"profiles": (replace(WIDE, max=(65537, 3, 1024, 1024)),)}, ProfileError, "a batch from 1 to 65536"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(
    source: Path, change: dict[str, object], error: type[UsageError], words: str
) -> None:
    report = Recorder()
    with pytest.raises(error) as caught:
        build_engine(replace(BuildOptions(onnx=source, precision="fp32"), **change), report)  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert caught.value.exit_code == 2
    assert report.stages == []
    assert [path.name for path in source.parent.iterdir()] == ["face.onnx"]


def test_pictures_that_float32_does_not_need_are_left_aside_aloud(source: Path, tmp_path: Path) -> None:
    report = Recorder()
    build_engine(BuildOptions(onnx=source, precision="fp32", calibration=tmp_path / "calib"), report)
    assert any("left aside" in text for text in report.warnings)


def test_a_read_only_output_is_an_error_before_any_work(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    report = Recorder()
    for output in (tmp_path / "file" / "a.plan", Path("/sys/face3d/a.plan")):
        with pytest.raises(StorageError) as caught:
            build_engine(BuildOptions(onnx=source, precision="fp32", output=output), report)
        assert str(output) in str(caught.value)
        assert caught.value.exit_code == 3
    assert report.stages == []


def test_a_full_disk_leaves_neither_plan_nor_manifest(source: Path) -> None:
    """A limit on file size between the sizes of typed graph and plan stands in for the full disk."""
    options = BuildOptions(onnx=source, precision="fp32")
    build_engine(options)
    size = options.plan.stat().st_size
    assert options.typed.stat().st_size < size
    options.plan.unlink()
    manifest_path(options.plan).unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
    try:
        with pytest.raises(StorageError, match="nothing was left"):
            build_engine(options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in source.parent.iterdir()) == [
        "face.fp32.onnx",
        "face.fp32.onnx.json",
        "face.onnx",
    ]


def test_the_manifest_is_json_that_others_can_read(source: Path) -> None:
    options = BuildOptions(onnx=source, precision="fp32")
    build_engine(options)
    record = json.loads(manifest_path(options.plan).read_text())
    assert record["flavour"] == "tensorrt_rtx"
    assert record["inputs"] == [{"name": "input", "dtype": "float32", "shape": [-1, 3, -1, -1]}]


def test_a_manifest_without_a_digest_gets_one_by_the_same_command(source: Path) -> None:
    options = BuildOptions(onnx=source, precision="fp32")
    build_engine(options)
    path = manifest_path(options.plan)
    whole = path.read_bytes()
    path.write_text(json.dumps({key: value for key, value in json.loads(whole).items() if key != "digest"}))
    report = Recorder()
    build_engine(options, report)
    assert any("reused" in text and ".plan" in text for text in report.stages)
    assert path.read_bytes() == whole


def _failing(options: BuildOptions, manifest: Manifest, plan: bytes, typed: Path) -> GateRecord:
    return GateRecord(passed=False, reason=f"{typed.name}: too far", worst="angle 50 %")


def test_a_build_that_fails_leaves_the_former_plan_whole(source: Path, tmp_path: Path) -> None:
    """Typed graph, record, plan and manifest change together, and what was calibrated meanwhile is not lost either."""
    options = BuildOptions(source, "int8", write_crops(tmp_path / "a", 2), "max")
    build_engine(options)
    former = {path: _sha(path) for path in source.parent.iterdir()}
    other = replace(options, calibration=write_crops(tmp_path / "b", 3, seed=7))
    with pytest.raises(BuildError, match="the former plan and its files are as they were") as caught:
        build_engine(other, gate=_failing)
    waiting = options.typed.with_name("face.int8.next.onnx")
    assert f"bisect --typed {waiting} --onnx {source}" in str(caught.value.run)
    assert {path: _sha(path) for path in source.parent.iterdir() if not path.name.startswith(waiting.name)} == former
    assert inspect_plan(options.plan).typed == "as built"
    report = Recorder()
    manifest = build_engine(other, report)
    assert any(f"reused   {waiting}" in text for text in report.stages)  # nothing is calibrated again
    assert manifest.typed_sha256 == _sha(options.typed)
    assert inspect_plan(options.plan).typed == "as built"
    assert {path: _sha(path) == former[path] for path in source.parent.iterdir()} == {
        path: path == source for path in former
    }


def test_a_graph_that_another_plan_needs_is_not_replaced(source: Path, tmp_path: Path) -> None:
    options = BuildOptions(source, "int8", write_crops(tmp_path / "a", 2), "max")
    build_engine(options)
    shared = replace(
        options, calibration=write_crops(tmp_path / "b", 3, seed=7), output=source.with_name("face.plan")
    )  # whose typed graph has the same name
    with pytest.raises(UsageError, match=r"is what .*face\.int8\.plan was built from"):
        build_engine(shared)
    assert inspect_plan(options.plan).typed == "as built"
