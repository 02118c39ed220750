"""Plans of full TensorRT: bytes that TensorRT-RTX built, with the manifest that TensorRT on a GPU would have written.

No test here runs one, and Triton is not here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.tiny import write_tiny

from face3d_trt.records import Gpu, Manifest, manifest_path

if TYPE_CHECKING:
    from face3d_trt.records import ProfileRecord

H200 = Gpu(name="NVIDIA H200", compute_capability="9.0", driver="580.159")
MakePlan = Callable[..., Path]


def profile(*shapes: tuple[int, ...]) -> ProfileRecord:
    from face3d_trt.records import ProfileRecord

    low, usual, high = shapes
    return ProfileRecord(min=low, opt=usual, max=high)


def batches(low: int, usual: int, high: int, side: int = 224) -> ProfileRecord:
    """Of pictures of one size, float32."""
    return profile(*((batch, 3, side, side) for batch in (low, usual, high)))


def _built(onnx: Path, *profiles: str) -> Path:
    from face3d_trt.engine.build import BuildOptions, build_engine
    from face3d_trt.engine.profile import Profile

    options = BuildOptions(onnx, "fp32", profiles=tuple(map(Profile.parse, profiles)))
    build_engine(options)
    return options.plan


@pytest.fixture(scope="session")
def rtx_float(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of TensorRT-RTX: float32 in, coefficients out; batches 1 to 4 and 2 to 8."""
    onnx = write_tiny(tmp_path_factory.mktemp("triton") / "float.onnx")
    return _built(
        onnx,
        "min=1x3x224x224,opt=1x3x224x224,max=4x3x224x224",
        "min=2x3x224x224,opt=8x3x224x224,max=8x3x224x224",
    )


@pytest.fixture(scope="session")
def rtx_mesh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of TensorRT-RTX: uint8 in, mesh out; 64 to 224 pixels, batches 1 to 4."""
    onnx = write_tiny(tmp_path_factory.mktemp("triton") / "mesh.onnx", outputs="mesh", layout="uint8")
    return _built(onnx, "min=1x64x64x3,opt=2x224x224x3,max=4x224x224x3")


@pytest.fixture
def make(rtx_float: Path, rtx_mesh: Path, tmp_path: Path) -> MakePlan:
    """`make("a.plan", mesh=True, version_compat=True, ...)`: a plan of TensorRT in a folder of its own."""

    def make(name: str = "face.plan", *, mesh: bool = False, **facts: object) -> Path:
        source = rtx_mesh if mesh else rtx_float
        plan = tmp_path / "plans" / name
        plan.parent.mkdir(exist_ok=True)
        shutil.copy(source, plan)
        own = {"flavour": "tensorrt", "flavour_version": "10.13.3.9", "gpu": H200, "targets": ()}
        Manifest.read(manifest_path(source)).model_copy(update={**own, **facts}).write(manifest_path(plan))
        return plan

    return make
