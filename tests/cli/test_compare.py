from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

PACKAGED = resources.files("face3d_trt.parity").joinpath("limits.json")


def face3d(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "face3d_trt", "compare", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)


def test_without_plans_it_names_the_command_that_builds_one(tmp_path: Path) -> None:
    result = face3d(tmp_path)
    assert result.returncode == 2
    assert "no plan with a manifest in engines" in result.stderr
    assert "face3d-trt build" in result.stderr
    assert result.stdout == ""


def limits(path: Path, precision: str, measure: str, key: str, value: object) -> Path:
    """The limits of `path`, or the package's where it is not there, with one other."""
    content = json.loads((path if path.exists() else PACKAGED).read_text())
    content[precision][measure][key] = value
    path.write_text(json.dumps(content))
    return path


def test_every_plan_gets_its_verdict_and_all_of_it_goes_into_the_json(engines: Path, tmp_path: Path) -> None:
    loose = limits(tmp_path / "loose.json", "int8", "relative", "default", 0.25)
    limits(loose, "int8", "cosine", "default", 0.95)
    result = face3d(engines.parent, "--json", str(tmp_path / "all.json"), "--limits", str(loose))
    assert result.returncode == 0, result.stdout + result.stderr
    for precision in ("fp16", "int8"):
        assert f"PASSED engines/face3d_resnet50.{precision}.plan" in result.stdout
    assert result.stderr.count("reference  float32 PyTorch") == 1  # two plans, one truth
    verdicts = json.loads((tmp_path / "all.json").read_text())["verdicts"]
    assert [verdict["precision"] for verdict in verdicts] == ["fp16", "int8"]


def test_it_exits_one_when_a_limit_is_not_kept(engines: Path, tmp_path: Path) -> None:
    strict = limits(tmp_path / "strict.json", "fp16", "relative", "coeffs.lighting", 1e-9)
    plan = engines / "face3d_resnet50.fp16.plan"
    limits(strict, "fp16", "meaning", "landmark_max", {"worst": 1e-6})
    junit = tmp_path / "verdict.xml"
    result = face3d(tmp_path, "--plan", str(plan), "--limits", str(strict), "--junit", str(junit))
    assert result.returncode == 1
    assert "failed: coeffs lighting" in result.stdout
    assert "failed: landmarks, max: ONNX Runtime, the typed fp16 ONNX is" in result.stdout
    failed = {
        case.get("name") for case in ElementTree.parse(junit).iter("testcase") if case.find("failure") is not None
    }
    lighting = {f"coeffs lighting at batch {batch}, profile 0" for batch in (1, 3, 4)}
    assert failed == {"landmarks, max", *lighting}
    assert "failed: coeffs angle" not in result.stdout


def test_a_malformed_limits_file_is_wrong_usage(engines: Path, tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text('{"schema_version": 1}')
    result = face3d(engines.parent, "--limits", str(tmp_path / "limits.json"))
    assert result.returncode == 2
    assert "limits.json is not valid" in result.stderr


def test_a_json_file_that_cannot_be_is_said_before_anything_is_measured(engines: Path, tmp_path: Path) -> None:
    result = face3d(engines.parent, "--json", str(tmp_path))
    assert result.returncode == 3
    assert f"cannot write {tmp_path}: Is a directory" in result.stderr
    assert result.stdout == ""
    assert "plan" not in result.stderr.partition("error:")[0]


def test_a_reference_is_saved_here_and_used_there(engines: Path, tmp_path: Path) -> None:
    plan = engines / "face3d_resnet50.fp16.plan"
    result = face3d(engines.parent, "--save-reference", str(tmp_path / "ref.npz"), "--plan", str(plan))
    assert result.returncode == 0, result.stderr
    assert "ref.npz: 8 pictures at 224x224, outputs: coeffs, input: float32" in result.stdout
    result = face3d(tmp_path, "--plan", str(plan), "--reference", "ref.npz")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "reference: ref.npz, by PyTorch" in result.stdout


def test_options_that_would_be_left_aside_are_refused(tmp_path: Path) -> None:
    for options in (
        ("--reference", "r.npz", "--limit", "9"),
        ("--reference", "r.npz", "--save-reference", "s.npz"),
        ("--save-reference", "s.npz", "--json", "all.json"),
        ("--size", "224x224"),
        ("--outputs", "mesh"),
        ("--no-bases",),
        ("--save-reference", "s.npz", "--junit", "all.xml"),
        ("--save-reference", "s.npz", "--model", "model", "--size", "1x1"),
    ):
        result = face3d(tmp_path, *options)
        assert result.returncode == 2, (options, result.stderr)
        assert "allowed:" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_said_at_once_and_by_its_own_name(engines: Path, tmp_path: Path) -> None:
    """Before torch and polygraphy are loaded: the folder's own, which come first on the path, cannot be."""
    for package in ("torch", "polygraphy", "onnxruntime"):
        (tmp_path / f"{package}.py").write_text("raise SystemExit('loaded')")
    plan = str(engines / "face3d_resnet50.fp16.plan")
    for options, problem in (
        (("--plan", "missing.plan"), "missing.plan is missing"),
        (("--plan", plan, "--plan", "missing.plan"), "missing.plan is missing"),
        (("--plan", plan, "--images", "nowhere"), "nowhere is missing"),
        (("--plan", "missing.plan", "--save-reference", "ref.npz", "--images", "nowhere"), "missing.plan is missing"),
    ):
        result = face3d(tmp_path, *options)
        assert result.returncode == 2, (options, result.stderr)
        assert result.stderr.startswith(f"error: {problem}\n"), result.stderr
        assert "JPEG" not in result.stderr


def test_a_missing_graph_is_answered_with_the_commands_of_the_manifest(engines: Path, tmp_path: Path) -> None:
    for name in ("face3d_resnet50.fp16.plan", "face3d_resnet50.fp16.plan.json", "face3d_resnet50.onnx"):
        shutil.copy(engines / name, tmp_path)
    command = json.loads((tmp_path / "face3d_resnet50.fp16.plan.json").read_text())["command"]
    result = face3d(tmp_path, "--plan", "face3d_resnet50.fp16.plan")
    assert f"run:     {command}\n" in result.stderr
    (tmp_path / "face3d_resnet50.onnx").rename(tmp_path / "face3d_resnet50.fp16.onnx")
    result = face3d(tmp_path, "--plan", "face3d_resnet50.fp16.plan")
    assert "--outputs coeffs --input float32 -o face3d_resnet50.onnx && face3d-trt build" in result.stderr
