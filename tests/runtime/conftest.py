"""Plans of a tiny network, built by TensorRT-RTX, which needs no GPU; and engines of them on ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.tiny import write_tiny

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from face3d_trt import OrtEngine


def build(onnx: Path, *profiles: str) -> Path:
    """A float32 plan."""
    from face3d_trt.engine.build import BuildOptions, build_engine
    from face3d_trt.engine.profile import Profile

    options = BuildOptions(onnx, "fp32", profiles=tuple(map(Profile.parse, profiles)))
    build_engine(options)
    return options.plan


@pytest.fixture(scope="session")
def float_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """(batch, 3, 224, 224) float32 in, coefficients out; profiles 1 to 2 and 2 to 4."""
    onnx = write_tiny(tmp_path_factory.mktemp("float") / "float.onnx")
    low, high = "min=1x3x224x224,opt=1x3x224x224,max=2x3x224x224", "min=2x3x224x224,opt=4x3x224x224,max=4x3x224x224"
    return build(onnx, low, high)


@pytest.fixture(scope="session")
def mesh_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """(batch, height, width, 3) uint8 in, mesh out; one profile: 1 to 4, 64 to 224 pixels."""
    onnx = write_tiny(tmp_path_factory.mktemp("mesh") / "mesh.onnx", outputs="mesh", layout="uint8")
    return build(onnx, "min=1x64x64x3,opt=2x224x224x3,max=4x224x224x3")


@pytest.fixture
def float_engine(float_plan: Path) -> Iterator[OrtEngine]:
    from face3d_trt import OrtEngine

    with OrtEngine(float_plan, threads=1) as engine:
        yield engine


@pytest.fixture
def mesh_engine(mesh_plan: Path) -> Iterator[OrtEngine]:
    from face3d_trt import OrtEngine

    with OrtEngine(mesh_plan, threads=1) as engine:
        yield engine
