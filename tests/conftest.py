"""Fixtures that several folders share, and the rule for tests that need a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _gpu_answers() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    result = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return result.returncode == 0 and "GPU 0" in result.stdout


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where no NVIDIA GPU answers, and say so."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _gpu_answers():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU answers on this machine"))


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
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`engines/` as `export` and `build` leave it, beside `model/` and `faces/`: fp16 and int8, batches of up to 4.

    Seed 2: of the default seed's three random angle outputs one hardly differs between pictures. The export is not
    checked here: `exported` is.
    """
    from importlib.resources import as_file, files

    import onnx

    from face3d_trt.engine.build import BuildOptions, build_engine
    from face3d_trt.engine.profile import Profile
    from face3d_trt.graph.export import ExportOptions, to_onnx
    from face3d_trt.graph.info import write_info
    from face3d_trt.model.load import load_model
    from face3d_trt.model.reference import reference_module
    from face3d_trt.model.standin import StandinOptions, write_standin
    from face3d_trt.records import ModelInfo

    home = tmp_path_factory.mktemp("home")
    write_standin(home / "model", StandinOptions(seeded=True, seed=2))
    with as_file(files("face3d_trt.faces") / "data") as pictures:
        shutil.copytree(pictures, home / "faces", ignore=shutil.ignore_patterns("*.md"))
    (home / "engines").mkdir()
    options = ExportOptions(model=str(home / "model"), output=home / "engines" / "face3d_resnet50.onnx")
    model = load_model(options.model, morphable=False)
    graph = to_onnx(reference_module(model, options.outputs, options.input), options)
    info = ModelInfo(
        source=model.source,
        revision=None,
        weights=model.weights,
        checkpoint_sha256=model.checkpoint_sha256,
        width=model.network.width,
        vertices=0,
        outputs=options.outputs,
        input=options.input,
        template=tuple(map(tuple, model.template.tolist())),
        version="test",
    )
    write_info(graph, info)
    onnx.save(graph, options.output)
    small = (Profile.parse("min=1x3x224x224,opt=3x3x224x224,max=4x3x224x224"),)
    build_engine(BuildOptions(onnx=options.output, precision="fp16", profiles=small))
    build_engine(BuildOptions(onnx=options.output, precision="int8", profiles=small, calibration=home / "faces"))
    return home / "engines"
