"""Time and peak memory of the main job, as the table in README.md.

usage: python tools/measure.py [MODEL_DIRECTORY]

Works in a temporary folder, so that nothing is reused. Without MODEL_DIRECTORY it measures on the small stand-in.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CALIBRATION = ROOT / "calibration"
STARTS = 5  # of `--help` and of the import; the middle one counts


@dataclass(frozen=True)
class Cost:
    """What one command took: wall clock in seconds, peak resident memory in bytes."""

    seconds: float
    peak_bytes: int


def run(*arguments: str, folder: Path) -> Cost:
    """Run a command in `folder` with its output on stderr; a failure ends the measurement."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    return Cost(seconds, usage.ru_maxrss * 1024)  # Linux counts in KiB


def middle(*arguments: str, folder: Path) -> Cost:
    """The middle one of several runs."""
    return sorted((run(*arguments, folder=folder) for _ in range(STARTS)), key=lambda cost: cost.seconds)[STARTS // 2]


def stages(engines: Path, precision: str) -> str:
    """What a build spent its time on, by its own records."""
    stem = engines / f"face3d_resnet50.{precision}"
    typed = json.loads(stem.with_name(stem.name + ".onnx.json").read_text())["seconds"]
    manifest = json.loads(stem.with_name(stem.name + ".plan.json").read_text())
    engine = f"{manifest['flavour']} {manifest['seconds'] - typed:.1f} s"
    if precision == "fp32":
        return engine
    if precision == "fp16":
        return f"AutoCast {typed:.1f} s, {engine}"
    return f"calibration on {manifest['calibration']['images']} pictures {typed:.1f} s, {engine}"


def main() -> None:
    """Measure and print."""
    command = ("-m", "face3d_trt")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else folder / "model"
        if len(sys.argv) == 1:
            rows.append(("`standin model/`", run(*command, "standin", str(model), folder=folder), ""))
        rows.append(("`export`", run(*command, "export", "--model", str(model), folder=folder), "check included"))
        for precision in ("fp32", "fp16", "int8"):
            pictures = () if precision == "fp32" else ("--calib", str(CALIBRATION))
            cost = run(*command, "build", f"--{precision}", *pictures, folder=folder)
            rows.append((f"`build --{precision}`", cost, stages(folder / "engines", precision)))
        photo = str(next(CALIBRATION.glob("*.jpg")))
        rows.append(("`compare`, three plans", run(*command, "compare", "--images", photo, folder=folder), ""))
        rows.append(("`--help`", middle(*command, "--help", folder=folder), "middle of five"))
        rows.append(("`import face3d_trt`", middle("-c", "import face3d_trt", folder=folder), "middle of five"))
    print(
        f"{os.cpu_count()} CPU cores, {platform.system()} {platform.machine()}, CPython {platform.python_version()}\n"
    )
    print("| command | time | peak memory | of which |\n|---|---|---|---|")
    for label, cost, note in rows:
        print(f"| {label} | {cost.seconds:.2f} s | {cost.peak_bytes / 2**20:.0f} MiB | {note} |")


if __name__ == "__main__":
    main()
