"""`face3d-trt build` as a user meets it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.tiny import write_crops, write_tiny

from face3d_trt.cli import main

pytest.importorskip("tensorrt_rtx", reason="the extra rtx is not installed")


def _run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "argv", ["face3d-trt", "build", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_build_ends_with_a_short_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tiny(tmp_path / "face.onnx")
    calib = write_crops(tmp_path / "calib", 3)
    assert _run(monkeypatch, "--onnx", source, "--int8", "--calib", calib, "--target", "8.9") == 0
    out, err = capsys.readouterr()
    assert "5 of 6 convolutions in int8" in out  # the head stays in fp16
    assert str(tmp_path / "face.int8.plan") in out
    assert "min=1x3x224x224,opt=8x3x224x224,max=32x3x224x224" in out
    assert "8.9 (tensorrt_rtx" in out
    assert "500 and more" in err
    assert "\n\n" not in err  # no progress bar is drawn into a file
    assert _run(monkeypatch, "--onnx", source, "--int8", "--calib", calib, "--target", "8.9") == 0
    assert capsys.readouterr().err.count("reused") == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--fp16", "--int8"], 2, "--fp16 and --int8 exclude each other"),
        (["--int8"], 2, "face3d-trt build --int8 --calib calibration/"),
        (["--int8", "--calib-method", "mean"], 2, "allowed: output, entropy, max"),
        (["--workspace", "lots"], 2, "--workspace 1GiB"),
        (["--profile", "min=1x3x224x224"], 2, "opt and max are missing"),
        (["--fp32", "--timing-cache", "cache"], 2, "has no timing cache"),
        (["--fp32", "--target", "9.0"], 2, "8.9"),
        (["--fp32", "--hardware-compat"], 2, "--hardware-compat: TensorRT-RTX"),
        (["--fp32", "--version-compat"], 2, "--version-compat: TensorRT-RTX"),
        (["--fp32", "--optimization-level", "4"], 2, "no --optimization-level here"),
        (["--fp32", "--optimization-level", "6"], 2, "0 (soonest) to 5"),
        (["--typed", "face.int8.onnx", "--int8"], 2, "--typed and --int8 exclude each other"),
        (["--typed", "face.int8.onnx", "--typed-only"], 2, "--typed and --typed-only exclude each other"),
        (["--typed", "face.int8.onnx"], 2, "--typed and --onnx"),
        (["--fp32", "--calib", "faces"], 2, "face3d-trt build --fp32 --images faces"),
        (["--fp16", "--calib-method", "max"], 2, "--calib-method max is for --int8"),
        (["--fp32", "--typed-only", "--for", "11", "--profile", "x"], 2, "--profile means nothing with --typed-only"),
        (["--fp32", "--typed-only", "--for", "11", "--no-gate"], 2, "--no-gate means nothing with --typed-only"),
        (["--fp32", "--typed-only", "--for", "11", "--optimization-level", "0"], 2, "--optimization-level 0 means"),
        (["--fp32", "--typed-only", "--for", "11", "--images", "x"], 2, "--images x means nothing with --typed-only"),
        (["--int8", "--calib", "x", "--until-passes", "--calib-method", "max"], 2, "--calib-method max and --until"),
        (["--int8", "--calib", "x", "--most", "3"], 2, "--most 3 goes with --until-passes"),
        (["--fp16", "--for", "8.6"], 2, "--typed-only --for 8.6"),
        (["--fp16", "--typed-only", "--for", "9"], 2, "8.6, 10, 11, rtx"),
        (["--fp32", "-o", "/sys/face3d/a.plan"], 3, "cannot write /sys/face3d/a.plan"),
        (["--fp32", "-o", "x.plan.txt"], 2, "the same command with -o x.plan"),
        (["--fp32", "--typed-only", "-o", "x.bin"], 2, "the same command with -o x.bin.plan"),
        (["--int8", "--calib", "/etc/hostname"], 2, "the same command with --calib /etc"),
        (["--no-such-option"], 2, "--no-such-option"),
    ],
)
def test_errors_name_the_thing_and_the_cure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    message: str,
) -> None:
    source = write_tiny(tmp_path / "face.onnx")
    assert _run(monkeypatch, "--onnx", source, *words) == code
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["face.onnx"]


def test_the_typed_graph_is_made_for_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tiny(tmp_path / "face.onnx")
    assert _run(monkeypatch, "--onnx", source, "--fp16", "--typed-only", "--for", "8.6") == 0
    out, _ = capsys.readouterr()
    assert "TensorRT's flags decide" in out
    assert "face3d-trt build --typed face.fp16.trt86.onnx" in out
    made = ["face.fp16.trt86.onnx", "face.fp16.trt86.onnx.json", "face.onnx"]
    assert sorted(path.name for path in tmp_path.iterdir()) == made
    assert _run(monkeypatch, "--onnx", source, "--fp16", "--typed-only", "--for", "10") == 0  # the kind of RTX
    assert sorted(path.name for path in tmp_path.iterdir()) == ["face.fp16.onnx", "face.fp16.onnx.json", *made]
    assert _run(monkeypatch, "--onnx", source, "--fp16", "--typed-only") == 0
    assert _run(monkeypatch, "--typed", tmp_path / "face.fp16.onnx", "--timing-cache", "none") == 0
    assert "6 of 6 convolutions in fp16" in capsys.readouterr().out


def test_the_graph_of_a_plan_is_not_replaced_by_one_for_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tiny(tmp_path / "face.onnx")
    common = ("--onnx", source, "--int8", "--calib", write_crops(tmp_path / "calib", 3))
    assert _run(monkeypatch, *common, "--target", "8.9", "--no-gate") == 0
    built = (tmp_path / "face.int8.onnx").read_bytes()
    assert _run(monkeypatch, *common, "--typed-only") == 0  # the very same
    capsys.readouterr()
    other = ("--typed-only", "--for", "8.6")
    assert _run(monkeypatch, *common, *other, "-o", tmp_path / "face.int8.plan") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "face.int8.plan was built from" in said
    assert "-o" in said
    assert _run(monkeypatch, *common, *other) == 0
    assert _run(monkeypatch, *common, *other, "-o", tmp_path / "face.int8.plan") == 2  # nor by a copy of that one
    assert (tmp_path / "face.int8.onnx").read_bytes() == built
    (tmp_path / "face.int8.plan").unlink()
    assert _run(monkeypatch, *common, *other, "-o", tmp_path / "face.int8.plan") == 0  # nobody needs it now


def test_a_missing_graph_is_answered_with_the_export_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(monkeypatch) == 2
    assert "face3d-trt export" in capsys.readouterr().err


def test_an_empty_calibration_folder_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tiny(tmp_path / "face.onnx")
    (tmp_path / "empty").mkdir()
    assert _run(monkeypatch, "--onnx", source, "--int8", "--calib", tmp_path / "empty") == 2
    assert "holds no pictures" in capsys.readouterr().err


@pytest.mark.parametrize(("marker", "precision"), [("building", "--fp32"), ("calibrating", "--int8")])
def test_ctrl_c_leaves_no_half_written_file(tmp_path: Path, root: Path, marker: str, precision: str) -> None:
    """SIGINT in the middle of a build of sixteen profiles, and of a calibration of sixty pictures."""
    source = write_tiny(tmp_path / "out" / "face.onnx")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = ["--onnx", str(source), precision]
    if precision == "--int8":
        words += ["--calib", str(write_crops(tmp_path / "calib", 60))]
    for batch in range(1, 17):
        words += ["--profile", f"min=1x3x64x64,opt={batch}x3x224x224,max=32x3x1024x1024"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch),
        "CUDA_VISIBLE_DEVICES": "",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "face3d_trt", "build", *words], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    said = ""
    with process.stderr:
        for line in process.stderr:
            said += line
            if line.startswith(marker):
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                break
        said += process.stderr.read()
    assert process.wait(60) == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    left = {path.name for path in source.parent.iterdir()}
    assert left <= {"face.onnx", "face.fp32.onnx", "face.fp32.onnx.json"}
    assert {path.name for path in scratch.iterdir()} <= {".ses"}  # importing onnxruntime makes that one


@pytest.mark.parametrize("ending", ["raise ImportError('initialization failed')", "pass", "raise SystemError('lost')"])
def test_ctrl_c_while_a_package_is_imported_is_no_missing_package(tmp_path: Path, root: Path, ending: str) -> None:
    """A C extension turns the KeyboardInterrupt in its initialisation into an error of its own, or drops it."""
    (tmp_path / "tensorrt_rtx.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    [None for _ in range(1000)]\n"
        "except KeyboardInterrupt: pass\n"
        f"{ending}\n"
    )
    write_tiny(tmp_path / "face.onnx")
    done = subprocess.run(
        [sys.executable, "-m", "face3d_trt", "build", "--fp32", "--onnx", "face.onnx"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root / 'src'}", "CUDA_VISIBLE_DEVICES": ""},
        timeout=60,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr
    assert sorted(path.name for path in tmp_path.glob("face*")) == ["face.onnx"]
