"""`reconstruct` with TensorRT: the engine processes are real, and so are the GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.reconstruct.conftest import run

from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.faces.samples import sample_crops
from face3d_trt.runtime.engine import Engine

pytestmark = pytest.mark.gpu
ROWS = 700  # in blocks of 256: the last batches are not full


@pytest.fixture(scope="module")
def array(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crops that are all different."""
    crops = np.concatenate([np.roll(sample_crops(), shift, axis=2) for shift in range(-(-ROWS // 8))])[:ROWS]
    path = tmp_path_factory.mktemp("crops") / "crops.npy"
    np.save(path, crops)
    return path


def coefficients(found, blocks: int) -> np.ndarray:
    names = list(found.records())
    assert len(names) == blocks
    return np.concatenate([found.coeffs(name) for name in names])


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_results_are_those_of_the_engine_and_do_not_depend_on_what_came_along(precision, plans, array, tmp_path):
    plan = plans / f"small_{precision}.plan"
    one = run(tmp_path / "one", plan, array, devices="0", detector="aligned")
    assert one.summary.backend.startswith("TensorRT")
    again = run(tmp_path / "again", plan, array, devices="0", detector="aligned", workers=3, queue=512)
    assert again.tree() == one.tree()
    found = coefficients(one, 3)
    with Engine(plan) as engine:
        full = max(profile.max[0] for profile in engine.profiles)
        pictures = np.load(array, mmap_mode="r")[:full]
        if engine.inputs[0].dtype == "float32":
            pictures = pictures.transpose(0, 3, 1, 2).astype(np.float32) / 255
        direct = engine(np.ascontiguousarray(pictures))["coeffs"]
    rows = len(direct)
    assert np.abs(found[:rows] - direct[:rows]).max() < 1e-5


def test_several_gpus_give_the_bytes_of_one(plans, array, tmp_path):
    count = len(visible_gpus())
    if count < 2:
        pytest.skip(f"{count} GPU is visible")
    plan = plans / "small_int8.plan"
    one = run(tmp_path / "one", plan, array, devices="0", detector="aligned")
    every = run(tmp_path / "every", plan, array, devices=",".join(map(str, range(count))), detector="aligned")
    assert every.tree() == one.tree()
    assert set(every.summary.gpus) == set(range(count))
