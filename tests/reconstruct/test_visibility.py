from __future__ import annotations

import numpy as np
import pytest
from tests.reconstruct.known import make_coeffs

from face3d_trt.decode import CAMERA_Z
from face3d_trt.reconstruct.texture import bake


def blocked(origin: np.ndarray, points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Whether a triangle lies between origin and each point, nearer by 5 mm: Möller and Trumbore 1997."""
    a, b, c = (corners[:, i] for i in range(3))
    found = np.zeros(len(points), bool)
    for index, point in enumerate(points):
        ray = point - origin
        length = np.linalg.norm(ray)
        p = np.cross(ray, c - a)
        scale = np.einsum("fi,fi->f", b - a, p)
        scale = np.where(np.abs(scale) < 1e-12, np.inf, scale)
        u = np.einsum("fi,fi->f", origin - a, p) / scale
        q = np.cross(origin - a, b - a)
        v = q @ ray / scale
        t = np.einsum("fi,fi->f", c - a, q) / scale
        found[index] = ((u >= 0) & (v >= 0) & (u + v <= 1) & (t > 0) & ((1 - t) * length > 0.05)).any()
    return found


@pytest.mark.parametrize(("yaw", "pitch"), [(0.0, 0.0), (0.7, 0.0), (-0.5, 0.35)])
def test_what_a_ray_to_the_camera_meets_is_not_trusted(decoder, yaw, pitch):
    coeffs = make_coeffs(yaw, pitch)
    face = decoder.decode(coeffs)
    result = bake(decoder, face, face.crop, np.zeros((224, 224, 3), np.uint8), 256)
    atlas = decoder.atlas(256, 256)
    chosen = np.random.default_rng(0).choice(np.flatnonzero(atlas.mapped), 400, replace=False)
    world = (face.shape @ face.turn.T + face.place).astype(np.float32)
    points = atlas.spread(world).reshape(-1, 3)[chosen]
    facing = atlas.spread(face.facing[:, None]).ravel()[chosen]
    hidden = blocked(np.array([0, 0, CAMERA_Z]), points.astype(np.float64), world[decoder.triangles].astype(np.float64))
    weight = result.weight.ravel()[chosen]
    assert weight[hidden].max(initial=0) < 0.5
    assert (weight[hidden] > 0.05).sum() <= 0.03 * len(chosen)
    if yaw:
        assert hidden.sum() > 10
    plain = ~hidden & (facing > 0.5)
    assert np.median(weight[plain]) > 0.95
    assert (weight[plain] < 0.05).mean() < 0.06  # those beside the nose's outline
    assert weight[facing < 0.1].max(initial=0) == 0


def test_trust_falls_off_towards_the_pictures_edge(decoder, coeffs):
    face = decoder.decode(coeffs)
    photo = np.zeros((224, 112, 3), np.uint8)
    weight = bake(decoder, face, face.crop, photo, 256).weight
    row = weight[128]
    place = decoder.atlas(256, 256).spread(face.crop.astype(np.float32))[128, :, 0]
    inside = place < 111
    assert row[~inside].max() == 0
    assert row[inside].max() == pytest.approx(1)
    assert np.abs(np.diff(row)).max() < 0.35
