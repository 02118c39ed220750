"""Plans that the tests on a GPU share.

`FACE3D_PROOF=DIR`, the folder that tools/gpu_proof.py worked in, has graphs and plans already: then neither torch, onnx
nor ModelOpt is needed here.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from face3d_trt.records import Precision

PRECISIONS: tuple[Precision, ...] = ("fp16", "int8")
CALIBRATED = 16
PROOF = "FACE3D_PROOF"


def _of_the_proof(folder: str) -> Path | None:
    given = os.environ.get(PROOF)
    return Path(given) / folder if given and (Path(given) / folder).is_dir() else None


@pytest.fixture(scope="session")
def typed_graphs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A folder with `small.float32.fp16.onnx` and `….int8.onnx`, the learned stand-in typed, and their records."""
    if (ready := _of_the_proof("graphs")) is not None:
        return ready
    for module in ("torch", "onnx", "modelopt"):
        pytest.importorskip(module, reason=f"{module} is not installed here, and {PROOF} names no graphs")
    from tests.helpers import export_unchecked

    from face3d_trt.engine.build import BuildOptions
    from face3d_trt.engine.typed import write_typed

    folder = tmp_path_factory.mktemp("graphs")
    faces = folder / "faces"
    faces.mkdir()
    for picture in sorted((root / "calibration").glob("render_*.jpg"))[:CALIBRATED]:
        shutil.copy(picture, faces)
    onnx = export_unchecked(request.getfixturevalue("standin"), folder / "small.float32.onnx")
    for precision in PRECISIONS:
        write_typed(BuildOptions(onnx, precision, faces if precision == "int8" else None))
    return folder


@pytest.fixture(scope="session")
def plans(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `small_fp16.plan` and `small_int8.plan` for batches of 1 to 4 and more, float32 input."""
    for module in ("tensorrt", "pycuda"):
        pytest.importorskip(module)
    if (ready := _of_the_proof("plans")) is not None:
        return ready
    from face3d_trt.engine.build import BuildOptions, build_engine
    from face3d_trt.engine.profile import Profile

    graphs: Path = request.getfixturevalue("typed_graphs")
    folder = tmp_path_factory.mktemp("plans")
    profiles = (Profile.parse("min=1x3x224x224,opt=4x3x224x224,max=8x3x224x224"),)
    for precision in PRECISIONS:
        typed, plan = graphs / f"small.float32.{precision}.onnx", folder / f"small_{precision}.plan"
        build_engine(BuildOptions(from_typed=typed, profiles=profiles, output=plan))
    return folder
