from __future__ import annotations

import json
import subprocess
import sys

HEAVY = (
    "torch",
    "onnx",
    "onnxruntime",
    "modelopt",
    "tensorrt",
    "tensorrt_rtx",
    "polygraphy",
    "cv2",
    "scipy",
)


def doctor(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "face3d_trt", "doctor", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_exit_code_is_the_verdict():
    result = doctor("--json")
    assert result.stderr == ""
    answer = json.loads(result.stdout)
    assert result.returncode == (0 if answer["healthy"] else 3)
    assert answer["machine"]["python"] == list(sys.version_info[:3])


def test_the_page_fits_eighty_columns_and_commands_stay_whole():
    result = doctor()
    lines = result.stdout.splitlines()
    assert any(line.startswith("run engines") for line in lines)
    assert all(len(line.rstrip()) <= 80 for line in lines if "run:" not in line)


def test_it_answers_without_loading_a_framework():
    code = (
        "import sys\nfrom face3d_trt.cli import app\n"
        "app(['doctor'], standalone_mode=False)\n"
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == "loaded:\n"
