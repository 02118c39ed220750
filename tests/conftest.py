"""Fixtures that several folders share, and the rule for tests that need a GPU."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CALIBRATED = 16  # of the 128 renders in calibration/
GPU_ONLY = "gpu"  # what `-m` is given
_GPU_MARK = re.compile(r"\bmarks?\.gpu\b")


def _gpu_answers() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    result = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return result.returncode == 0 and "GPU 0" in result.stdout


def pytest_configure() -> None:
    """A job in the background ignores Ctrl-C, and so would the processes that tests interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m gpu`, leave out files without such tests: they may import what a machine with TensorRT alone lacks."""
    if config.option.markexpr != GPU_ONLY or not collection_path.match("test_*.py"):
        return None
    return None if _GPU_MARK.search(collection_path.read_text(encoding="utf-8")) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where no NVIDIA GPU answers, and say so."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _gpu_answers():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU answers on this machine"))


@pytest.fixture(scope="session", autouse=True)
def no_trace_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Builds on a GPU keep their measurements in the user's cache folder: not those of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def astronaut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo photo as a PNG file: (512, 512, 3) uint8 RGB, one face; NASA's portrait of Eileen Collins."""
    from PIL import Image
    from skimage import data

    path = tmp_path_factory.mktemp("photo") / "astronaut.png"
    Image.fromarray(data.astronaut()).save(path)
    return path


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small stand-in's model directory."""
    from face3d_trt.model.standin import write_standin

    directory = tmp_path_factory.mktemp("standin") / "model"
    write_standin(directory)
    return directory


@pytest.fixture(scope="session")
def exported(standin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small stand-in as ONNX: float32 input, coefficients only."""
    from face3d_trt.graph.export import ExportOptions, export_onnx

    path = tmp_path_factory.mktemp("exported") / "face3d_resnet50.onnx"
    export_onnx(ExportOptions(model=str(standin), output=path))
    return path


@pytest.fixture(scope="session")
def exported_mesh(standin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small stand-in as ONNX: uint8 input; coefficients, vertex and texture."""
    from face3d_trt.graph.export import ExportOptions, export_onnx

    path = tmp_path_factory.mktemp("exported") / "mesh.onnx"
    export_onnx(ExportOptions(model=str(standin), outputs="mesh", input="uint8", output=path))
    return path


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory, standin: Path, root: Path) -> Path:
    """`engines/` as `export` and `build` leave it, beside `model/` and `faces/`: fp16 and int8, batches of up to 4.

    `faces/` calibrated int8: renders that the package's sample faces are not among.
    """
    from tests.helpers import export_unchecked, small_build

    home = tmp_path_factory.mktemp("home")
    shutil.copytree(standin, home / "model")
    (home / "faces").mkdir()
    for picture in sorted((root / "calibration").glob("render_*.jpg"))[:CALIBRATED]:
        shutil.copy(picture, home / "faces")
    onnx = export_unchecked(home / "model", home / "engines" / "face3d_resnet50.onnx")
    small_build(onnx, "fp16")
    small_build(onnx, "int8", home / "faces")
    return home / "engines"
