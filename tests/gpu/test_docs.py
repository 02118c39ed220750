"""docs/runtime.md with TensorRT."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.docblocks import blocks, run_block

from face3d_trt.records import Manifest, manifest_path

pytestmark = pytest.mark.gpu


@pytest.fixture
def home(plans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the plan that the document opens."""
    (tmp_path / "engines").mkdir()
    plan = tmp_path / "engines" / "face3d_resnet50.fp16.plan"
    shutil.copy(plans / "small_fp16.plan", plan)
    shutil.copy(manifest_path(plans / "small_fp16.plan"), manifest_path(plan))
    typed = plans / Manifest.read(manifest_path(plan)).typed
    if typed.is_file():
        shutil.copy(typed, plan.parent)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("heading", list(blocks()))
def test_the_block_runs(heading):
    code = blocks()[heading]
    if "import torch" in code:
        pytest.importorskip("torch")
    if 'on="cpu"' in code:
        pytest.importorskip("onnxruntime")
    with run_block(heading)["engine"] as engine:
        assert "TensorRT" in engine.backend
