"""`build --int8 --until-passes`, and the gate at the end of a build, on the learned stand-in."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from tests.bisect import damages
from tests.tiny import Recorder, write_crops, write_tiny

from face3d_trt.bisect.until import Outcome, Try, Until, _faster, fewest_beyond, until_passes
from face3d_trt.cli import main
from face3d_trt.engine import flavour as flavours
from face3d_trt.engine.build import BuildOptions, build_engine
from face3d_trt.engine.flavour import TYPES
from face3d_trt.engine.profile import Profile
from face3d_trt.errors import BuildError, UsageError
from face3d_trt.files import sha256_file
from face3d_trt.graph.precision import record_path
from face3d_trt.parity.build_gate import BuildGate
from face3d_trt.parity.compare import CompareOptions, compare
from face3d_trt.parity.page.sensitivity import sensitivity_of
from face3d_trt.records import BisectRecord, Manifest, TypedRecord, manifest_path

SMALL = (Profile.parse("min=1x3x224x224,opt=4x3x224x224,max=4x3x224x224"),)


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorrt_rtx", reason="the extra rtx is not installed")
    monkeypatch.setattr(flavours, "visible_gpus", lambda: ())


@pytest.fixture
def home(engines: Path, tmp_path: Path) -> Path:
    """A folder with the float32 graph and its model beside, and white noise to calibrate on."""
    shutil.copytree(engines.parent / "model", tmp_path / "model")
    (tmp_path / "engines").mkdir()
    shutil.copy(engines / "face3d_resnet50.onnx", tmp_path / "engines")
    (tmp_path / "noise").mkdir()
    random = np.random.default_rng(0)
    for index in range(4):
        pixels = random.integers(0, 256, (224, 224, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "noise" / f"{index}.png")
    return tmp_path


def test_white_noise_misses_the_limits_and_the_build_repairs_itself(home: Path) -> None:
    source = home / "engines" / "face3d_resnet50.onnx"
    options = BuildOptions(source, "int8", home / "noise", profiles=SMALL)
    report = Recorder()
    outcome = until_passes(options, TYPES, Until(most=20, model=str(home / "model")), report=report)
    plain, last = outcome.tries[:3], outcome.tries[-1]
    assert [each.method for each in plain] == ["output", "entropy", "max"]
    assert not any(each.passed for each in plain)
    assert [each.judged for each in plain] == [None] * 3  # the samples have not seen what they judge in the end
    assert all(each.strain > 1 and each.kept == () and each.latency_ms is None for each in plain)
    assert last.passed
    assert last.strain <= 0.9
    assert last.judged is not None
    assert last.judged <= 1
    said = " ".join(outcome.notes)
    assert "chosen on 16 pictures (the package's renders for choosing)" in said
    assert "judged on 8 others (the package's samples)" in said
    assert last.method == min(plain, key=lambda each: each.strain).method
    assert 0 < len(last.kept) <= 20
    assert 0.5 < last.macs < 1
    assert outcome.options is not None
    assert outcome.options.keep == home / "engines" / "face3d_resnet50.int8.keep.json"
    assert {entry.node for entry in BisectRecord.read(outcome.options.keep).keep} == set(last.kept)
    manifest = build_engine(outcome.options, report)
    layers = sensitivity_of(str(options.plan), None)  # of the graph that was ranked, which this plan's was made from
    assert layers is not None
    assert all(f"{name}" in " ".join(layers.sentences) for name in last.kept)
    assert {line.name for line in layers.lines if line.kept} == set(last.kept)
    assert layers.build == ""  # it is built
    assert f"--keep {outcome.options.keep}" in manifest.command
    record = TypedRecord.read(record_path(options.typed))
    assert set(last.kept) <= {each.node for each in record.kept}
    assert compare(CompareOptions(options.plan, model=str(home / "model"))).passed  # as the user will ask
    assert sum("for real use give" in text for text in report.warnings) <= 2  # once in the search, once in the build
    assert sorted(path.name for path in source.parent.iterdir()) == [
        "face3d_resnet50.int8.keep.json",
        "face3d_resnet50.int8.onnx",
        "face3d_resnet50.int8.onnx.json",
        "face3d_resnet50.int8.plan",
        "face3d_resnet50.int8.plan.json",
        "face3d_resnet50.onnx",
    ]


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["face3d-trt", "build", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_graph_that_fails_gets_no_plan_under_its_name(
    home: Path, engines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Damage behind the record's back stands for whatever makes an engine wrong."""
    typed, plan = home / "engines" / "face3d_resnet50.fp16.onnx", home / "engines" / "face3d_resnet50.fp16.plan"
    record = TypedRecord.read(record_path(engines / typed.name))
    model = onnx.load(engines / typed.name)
    damages.louder(model, "backbone.layer3.1.conv2/Conv")
    onnx.save(model, typed)
    record.model_copy(update={"sha256": sha256_file(typed)}).write(record_path(typed))
    monkeypatch.chdir(home)
    small = ("--profile", SMALL[0], "--model", home / "model")
    assert command(monkeypatch, "--typed", typed, *small) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "did not get its name" in said
    assert "face3d-trt bisect --typed" in said
    assert "--no-gate" in said
    assert not plan.exists()
    assert not manifest_path(plan).exists()
    assert command(monkeypatch, "--typed", typed, *small, "--no-gate") == 0
    assert Manifest.read(manifest_path(plan)).gate is None
    assert command(monkeypatch, "--typed", typed, *small) == 1  # asked again, as nobody has
    assert "was left there" in capsys.readouterr().err
    assert plan.exists()


def test_a_good_plan_says_how_good_and_is_not_judged_twice(
    home: Path, engines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = home / "engines" / "face3d_resnet50.fp16.onnx"
    for path in (engines / typed.name, record_path(engines / typed.name)):
        shutil.copy(path, typed.parent)
    words = ("--typed", typed, "--model", home / "model", "--profile", SMALL[0])
    assert command(monkeypatch, *words) == 0
    out, err = capsys.readouterr()
    assert "passed on 8 pictures (the package's samples)" in out
    assert "gate       passed" in err
    gate = Manifest.read(manifest_path(typed.with_suffix(".plan"))).gate
    assert gate is not None
    assert (gate.passed, gate.judged, gate.pictures) == (True, ("onnxruntime-typed",), 8)
    assert command(monkeypatch, *words) == 0
    out, err = capsys.readouterr()
    assert "gate " not in err
    assert "passed on 8 pictures" in out


def test_where_it_cannot_be_asked_it_says_so_and_builds(tmp_path: Path) -> None:
    """The miniature's model directory is nowhere; its int8 figures would mean nothing."""
    source, report = write_tiny(tmp_path / "face.onnx"), Recorder()
    fp16 = build_engine(BuildOptions(source, "fp16"), report, BuildGate(report=report))
    assert fp16.gate is not None
    assert fp16.gate.passed is None
    assert "tiny" in fp16.gate.reason
    assert "face3d-trt compare --plan" in fp16.gate.reason
    int8 = build_engine(BuildOptions(source, "int8", write_crops(tmp_path / "c", 2)), report, BuildGate(report=report))
    assert int8.gate is not None
    assert "seeded weights" in int8.gate.reason
    assert sum(text.startswith("gate       not run") for text in report.stages) == 2


def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, calib = write_tiny(tmp_path / "face.onnx"), write_crops(tmp_path / "c", 2)
    options = BuildOptions(source, "int8", calib)
    for wrong in (replace(options, precision="fp16"), replace(options, keep=tmp_path / "k"), BuildOptions(source)):
        with pytest.raises(UsageError, match="--until-passes"):
            until_passes(wrong, TYPES)
    keep = tmp_path / "keep.json"
    keep.write_text(json.dumps({"keep": [{"node": "backbone.conv1/Con"}]}))
    for words, said in (
        (("--most", 3), "--most 3 goes with --until-passes"),
        (("--fp32", "--keep", keep), "means nothing with --fp32"),
        (("--typed", source, "--keep", keep), "--typed and --keep exclude each other"),
        (("--typed", source, "--until-passes"), "--typed and --until-passes exclude each other"),
        (("--fp16", "--keep", keep), "backbone.conv1/Conv"),
        (("--fp16", "--until-passes"), "--int8 --calib DIR --until-passes"),
    ):
        assert command(monkeypatch, "--onnx", source, *words) == 2, words
        assert said in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "face.onnx", "keep.json"]


def test_int8_that_is_not_faster_is_said() -> None:
    assert "int8 is not faster than fp16 here: 0.500 ms and 0.490 ms" in next(_faster(0.5, 0.49))
    assert "2.00 times as fast" in next(_faster(0.5, 1.0))
    assert list(_faster(None, 1.0)) == []


def test_it_is_said_how_many_nodes_more_would_hold() -> None:
    def tried(kept: int, strain: float) -> Try:
        return Try("max", tuple(map(str, range(kept))), False, strain, None, "", "", "", 1.0)

    outcome = Outcome((tried(0, 1.4), tried(13, 0.9), tried(19, 0.8), tried(20, 1.1)), None)
    assert fewest_beyond(outcome, 12) == outcome.tries[1]
    assert fewest_beyond(outcome, 16) == outcome.tries[2]
    assert fewest_beyond(outcome, 19) is None


def test_a_failing_gate_is_a_build_error_that_names_the_row(tmp_path: Path) -> None:
    from face3d_trt.records import GateRecord

    source = write_tiny(tmp_path / "face.onnx")
    failed = GateRecord(passed=False, reason="coeffs angle: too far", pictures=3, origin="here", worst="angle 50 %")
    with pytest.raises(BuildError, match=r"coeffs angle: too far") as caught:
        build_engine(BuildOptions(source, "fp16"), gate=lambda options, manifest, plan, typed: failed)
    assert caught.value.exit_code == 1
    assert {path.suffix for path in tmp_path.iterdir()} == {".onnx", ".json"}
