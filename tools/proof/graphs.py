"""The graphs that are proven: stand-ins, exported and typed for the TensorRT of the other interpreter.

GRAPHS/small/                        the learned small stand-in, a model directory
GRAPHS/full/                         the seeded stand-in of full size
GRAPHS/small.float32.onnx            export --input float32
GRAPHS/small.float32.int8.onnx       what `build` would type for that TensorRT; its record beside it
GRAPHS/small.float32.fp16.onnx
GRAPHS/full.{float32,uint8}.{fp16,int8}.onnx
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .results import read

if TYPE_CHECKING:
    from .results import Settings

ROOT = Path(__file__).resolve().parents[2]
CALIBRATION = ROOT / "calibration"
FEW = 16  # renders that calibrate the seeded network, whose accuracy means nothing
TYPED = (
    "small.float32.fp16",
    "small.float32.int8",
    "full.uint8.int8",
    "full.uint8.fp16",
    "full.float32.int8",
    "full.float32.fp16",
)


def run(settings: Settings) -> dict[str, Any]:
    """Make what is missing: `{"bytes": {name: ...}, "commands": [...]}`."""
    folder = settings.graphs
    folder.mkdir(parents=True, exist_ok=True)
    commands = [line for name in TYPED if not is_there(settings, name) for line in _make(settings, name)]
    return {
        "commands": list(dict.fromkeys(commands)),
        "bytes": {name: settings.graph(name).stat().st_size for name in TYPED},
    }


def is_there(settings: Settings, name: str) -> bool:
    """Whether a typed graph and its record are there."""
    graph = settings.graph(name)
    return graph.is_file() and graph.with_name(graph.name + ".json").is_file()


def _make(settings: Settings, name: str) -> list[str]:
    from .commands import face3d

    size, layout, precision = name.split(".")
    folder = settings.graphs
    lines = []
    if not (folder / size).is_dir():
        lines.append(face3d("standin", size, "--size", size, folder=folder).command)
    exported = f"{size}.{layout}.onnx"
    if not (folder / exported).is_file():
        lines.append(face3d("export", "--model", size, "--input", layout, "-o", exported, folder=folder).command)
    words: list[str | Path] = [
        "build",
        "--onnx",
        exported,
        f"--{precision}",
        "--typed-only",
        "--for",
        generation(settings),
    ]
    if precision == "int8":
        words += _calibration(folder, size)
    plan = settings.graph(name).with_suffix(".plan").name
    lines.append(face3d(*words, "-o", plan, folder=folder).command)
    return lines


def generation(settings: Settings) -> str:
    """What `--for` is told: the TensorRT that the other interpreter has."""
    machine = read("machine_engine", settings.out)
    if machine is None:
        raise RuntimeError("it is not known which TensorRT the graphs are for: run the step machine_engine")
    if machine.figures["flavour"] == "tensorrt_rtx":
        return "rtx"
    major, minor = machine.figures["version"].split(".")[:2]
    return f"{major}.{minor}" if int(major) < 10 else major


def _calibration(folder: Path, size: str) -> list[str | Path]:
    if size == "small":
        return ["--calib", CALIBRATION]
    few = folder / "few"
    if not few.is_dir():
        few.mkdir()
        for picture in sorted(CALIBRATION.glob("render_*.jpg"))[:FEW]:
            shutil.copy(picture, few)
    return ["--calib", few, "--calib-method", "max"]
