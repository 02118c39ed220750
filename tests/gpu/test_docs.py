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
    typed = Manifest.read(manifest_path(plan)).typed
    if (plans / typed).is_file():
        (plan.parent / typed).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(plans / typed, plan.parent / typed)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("heading", list(blocks()))
def test_the_block_runs(heading):
    code = blocks()[heading]
    for words, module in (("import torch", "torch"), ('on="cpu"', "onnxruntime"), ("from PIL", "PIL")):
        if words in code:
            pytest.importorskip(module)
    with run_block(heading)["engine"] as engine:
        assert "TensorRT" in engine.backend
