"""The numpy decode is the PyTorch decode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from face3d_trt.decode import Decoder, gamma, light, pose, project
from face3d_trt.model.load import load_model
from face3d_trt.model.random_faces import random_coeffs
from face3d_trt.model.render import Renderer

if TYPE_CHECKING:
    from face3d_trt.model.morphable import MorphableModel

UNIT = 1e-4  # of 100 mm: 0.01 mm


@pytest.fixture(scope="module")
def morphable(standin: Path) -> MorphableModel:
    found = load_model(standin).morphable
    assert found is not None
    return found


@pytest.fixture(scope="module")
def coeffs() -> torch.Tensor:
    return random_coeffs(5, torch.Generator().manual_seed(5))


def test_shape_pose_albedo_and_landmarks(morphable: MorphableModel, coeffs: torch.Tensor) -> None:
    decoder, rows = Decoder.of(morphable), coeffs.numpy()
    vertex = pose(decoder.shape(rows), rows)
    np.testing.assert_allclose(decoder.shape(rows), morphable.shape(coeffs).numpy(), atol=UNIT)
    np.testing.assert_allclose(vertex, morphable.vertex(coeffs).numpy(), atol=UNIT)
    np.testing.assert_allclose(decoder.albedo(rows), morphable.albedo(coeffs).numpy(), atol=UNIT)
    landmarks = morphable.landmarks(morphable.vertex(coeffs)).numpy()
    np.testing.assert_allclose(project(vertex[:, decoder.keypoints]), landmarks, atol=0.01)  # px


def test_normals_and_light(morphable: MorphableModel, coeffs: torch.Tensor) -> None:
    decoder, rows, renderer = Decoder.of(morphable), coeffs.numpy(), Renderer(morphable)
    normals = decoder.normals(decoder.shape(rows))
    np.testing.assert_allclose(normals, renderer.normals(morphable.shape(coeffs)).numpy(), atol=1e-3)
    upright = rows.copy()
    upright[:, 224:227] = 0
    lit = decoder.albedo(rows) * light(normals, gamma(rows))
    np.testing.assert_allclose(lit.clip(0, 1), renderer.colours(torch.from_numpy(upright))[1].numpy(), atol=1e-3)


def test_a_normal_is_undefined_where_so_small_a_move_can_turn_it_round(morphable: MorphableModel) -> None:
    decoder, rng = Decoder.of(morphable), np.random.default_rng(0)
    shape = decoder.mean_shape.reshape(1, -1, 3).astype(np.float64)
    middle = int(decoder.keypoints[30])
    assert not decoder.undefined(shape, 1e-4)[0, middle]
    around = np.unique(decoder.triangles[(decoder.triangles == middle).any(axis=1)])
    line = np.linspace(0, 0.1, len(around))[:, None] * [1.0, 0, 0]
    shape[0, around] = shape[0, middle] + line + rng.normal(0, 1e-5, line.shape)  # all nearly on it
    found = decoder.undefined(shape, 1e-4)[0]
    assert found[middle]
    assert found.mean() < 0.01
    turned = np.zeros(found.shape, bool)
    for _ in range(20):
        step = rng.normal(size=shape.shape)
        moved = shape + 1e-4 * step / np.linalg.norm(step, axis=-1, keepdims=True)
        turned |= (decoder.normals(shape) * decoder.normals(moved)).sum(axis=-1)[0] < 0
    assert turned[middle]
    assert not (turned & ~found).any()


def test_arrays_of_another_kind_are_told_apart(morphable: MorphableModel) -> None:
    decoder = Decoder.of(morphable)
    arrays = {name: getattr(decoder, name) for name in decoder.names()}
    assert Decoder.fits(arrays)
    for name, value in (
        ("mean_shape", arrays["mean_shape"][:-1]),
        ("shape_basis", arrays["shape_basis"][:80]),
        ("triangles", arrays["triangles"] + decoder.vertices),
        ("keypoints", arrays["keypoints"][:5]),
    ):
        assert not Decoder.fits(arrays | {name: value}), name
    assert not Decoder.fits({name: value for name, value in arrays.items() if name != "keypoints"})


def test_the_head_is_as_large_as_its_mean_shape(morphable: MorphableModel, standin: Path) -> None:
    from scipy.io import loadmat

    mean = loadmat(standin / "assets/BFM_model_front.mat")["meanshape"].reshape(-1, 3)
    expected = (mean.max(axis=0) - mean.min(axis=0)) * 100
    np.testing.assert_allclose(Decoder.of(morphable).head_mm, expected, rtol=1e-5)
