from __future__ import annotations

import numpy as np
import pytest
from tests.reconstruct.known import texels

from face3d_trt.parity.portrait import visible
from face3d_trt.reconstruct.atlas import make_atlas
from face3d_trt.reconstruct.raster import nearest_surface
from face3d_trt.reconstruct.uv import choose_uv, cylindrical_uv, measure_uv


def sheet(side: int) -> tuple[np.ndarray, np.ndarray]:
    """A square in the plane z = 0 and its triangles: points (side², 2)."""
    axis = np.linspace(0, 1, side)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    corner = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).ravel()
    lower = np.stack([corner, corner + 1, corner + side], 1)
    upper = np.stack([corner + 1, corner + side + 1, corner + side], 1)
    return points, np.concatenate([lower, upper])


def test_a_map_that_keeps_lengths_has_no_stretch():
    flat, triangles = sheet(9)
    quality = measure_uv(flat, np.c_[flat, np.zeros(len(flat))], triangles)
    assert quality.folded == 0
    assert (quality.stretch, quality.worst, quality.used) == pytest.approx((1, 1, 1))


def test_stretch_is_what_it_is_by_hand():
    """A sheet that is 4 long and 1 wide, squeezed into a square: one axis 4, the other 1, the scale 2."""
    flat, triangles = sheet(9)
    quality = measure_uv(flat, np.c_[flat * (4, 1), np.zeros(len(flat))], triangles)
    assert quality.stretch == pytest.approx(2)


def test_what_is_turned_over_counts_as_folded():
    flat, triangles = sheet(11)
    folded = flat.copy()
    folded[:, 0] = np.where(flat[:, 0] > 0.75, 1.5 - flat[:, 0], flat[:, 0])  # the last quarter back over the third
    quality = measure_uv(folded, np.c_[flat, np.zeros(len(flat))], triangles)
    assert quality.folded == pytest.approx(0.25, abs=0.06)


def test_the_cylinder_unwraps_a_face_without_folds(decoder):
    mean = decoder.basis.mean_shape.reshape(-1, 3)
    uv = cylindrical_uv(mean, decoder.triangles)
    quality = measure_uv(uv, mean, decoder.triangles)
    assert uv.min() >= 0
    assert uv.max() <= 1
    assert quality.folded == 0
    assert quality.stretch < 1.6
    assert quality.used > 0.6
    up, right = mean[:, 1] > 0.6, mean[:, 0] > 0.4
    assert uv[up, 1].min() > 0.5  # v upwards
    assert uv[right, 0].min() > 0.5  # u to the right


def test_an_overhang_is_pulled_apart(decoder):
    """A nose that hides its own underside from the cylinder's axis."""
    mean = decoder.basis.mean_shape.reshape(-1, 3).copy()
    tip = np.exp(-0.5 * ((mean[:, 0] / 0.08) ** 2 + ((mean[:, 1] + 0.06) / 0.06) ** 2))
    mean += tip[:, None] * np.array([0, -0.25, 0.1])
    x, y, z = mean.T
    simple = np.stack([np.arctan2(x, z - z.min() + 0.1), y], 1)
    assert measure_uv(simple, mean, decoder.triangles).folded > 0.001
    assert measure_uv(cylindrical_uv(mean, decoder.triangles), mean, decoder.triangles).folded == 0


def test_the_models_map_is_used_where_it_is_one(decoder):
    mean, uv = decoder.basis.mean_shape.reshape(-1, 3), decoder.uv
    crumpled = np.random.default_rng(0).random(uv.shape).astype(np.float32)
    assert choose_uv(uv, mean, decoder.triangles)[1] == "model"
    for unusable in (None, uv[:-1], uv * 512, np.full_like(uv, np.nan), crumpled):
        chosen, origin = choose_uv(unusable, mean, decoder.triangles)
        assert origin == "cylinder"
        assert chosen.shape == uv.shape


@pytest.mark.parametrize("size", [256, 300])
def test_every_texel_interpolates_to_its_own_place(decoder, size):
    """What the atlas makes of the vertices' UV coordinates are the texels' centres."""
    atlas = make_atlas(decoder.uv, decoder.triangles, size, size)
    own = atlas.spread(decoder.uv)
    radius = np.hypot(*np.moveaxis(texels(size) - 0.5, -1, 0))
    assert np.abs(own - texels(size))[atlas.mapped].max() < 1e-5
    assert atlas.mapped[radius < 0.499].all()  # the stand-in's map is a disc
    assert not atlas.mapped[radius > 0.5 + 1 / size].any()
    near = atlas.padded & ~atlas.mapped & (radius < 0.5)
    assert np.abs(own - texels(size))[near].max() < 1e-4
    assert np.linalg.norm(own - texels(size), axis=2)[atlas.padded].max() < 1 / 64 + 1.5 / size
    assert not own[~atlas.padded].any()


def test_the_rasteriser_agrees_with_another(decoder, coeffs):
    """With that of the comparison, which goes pixel by pixel of the boxes."""
    face = decoder.decode(coeffs)
    world = face.shape @ face.turn.T.astype(np.float32)
    pixel, corners, weights = visible(world, decoder.triangles, 2)
    mine = nearest_surface((face.crop + 0.5) * 2, face.depth, decoder.triangles, 448, 448)
    assert abs(len(np.setxor1d(pixel, mine.pixel))) < 0.001 * len(pixel)
    common, here, there = np.intersect1d(pixel, mine.pixel, return_indices=True)
    same = (np.sort(corners[here], axis=1) == np.sort(decoder.triangles[mine.triangle[there]], axis=1)).all(axis=1)
    assert same.mean() > 0.99  # on an edge, either triangle is right
    depth = np.einsum("pk,pk->p", weights[here], face.depth[corners[here]])
    own = np.einsum("pk,pk->p", mine.weights[there], face.depth[decoder.triangles[mine.triangle[there]]])
    assert np.abs(depth - own).max() < 1e-4
    assert len(common) > 10_000


def test_a_surface_outside_of_the_picture_is_not_there(decoder, coeffs):
    face = decoder.decode(coeffs)
    assert len(nearest_surface(face.crop - 1000, face.depth, decoder.triangles, 224, 224).pixel) == 0
