from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

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


def limits(path: Path, precision: str, measure: str, key: str, value: float) -> Path:
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
    result = face3d(tmp_path, "--plan", str(plan), "--limits", str(strict))
    assert result.returncode == 1
    assert "failed: coeffs lighting" in result.stdout
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
        ("--save-reference", "s.npz", "--model", "model", "--size", "1x1"),
    ):
        result = face3d(tmp_path, *options)
        assert result.returncode == 2, (options, result.stderr)
        assert "allowed:" in result.stderr
    assert list(tmp_path.iterdir()) == []
