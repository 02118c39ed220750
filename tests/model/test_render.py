import numpy as np
import pytest
import torch

from face3d_trt.model.load import load_model
from face3d_trt.model.random_faces import random_photographs
from face3d_trt.model.render import Renderer, harmonics, shade


@pytest.fixture(scope="module")
def renderer(standin):
    return Renderer(load_model(standin).morphable)


def test_harmonics_integrate_as_published():
    """Over the sphere the scaled basis is orthogonal, with mean 0.8862 for the first function and 0 for the others."""
    rng = np.random.default_rng(0)
    normals = rng.normal(size=(400_000, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    basis = harmonics(torch.from_numpy(normals)).numpy()
    np.testing.assert_allclose(basis.mean(0), [0.8862] + [0] * 8, atol=0.01)
    gram = basis.T @ basis / len(basis)
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=0.02)


def test_no_lighting_means_white_ambient_light():
    albedo = torch.rand(1, 7, 3)
    normals = torch.nn.functional.normalize(torch.randn(1, 7, 3), dim=-1)
    torch.testing.assert_close(
        shade(albedo, normals, torch.zeros(1, 27)), albedo * (0.8 * 0.886227), rtol=1e-4, atol=1e-5
    )


def test_the_outline_is_where_the_projection_says(renderer):
    coeffs = torch.zeros(1, 257)
    coeffs[0, 254] = 0.2
    vertex = renderer.morphable.vertex(coeffs)
    _, cover = renderer.draw(*renderer.colours(coeffs))
    columns = np.flatnonzero(cover[0, 0].amax(0).numpy() > 0.5)
    x = 1015 * vertex[0, :, 0] / (10 - vertex[0, :, 2]) + 112
    np.testing.assert_allclose([columns.min(), columns.max() + 1], [x.min(), x.max()], atol=1.0)


def test_the_nearer_surface_hides_the_other(renderer):
    """With the head turned by 60 degrees the nose covers the far cheek: every pixel shows its nearest surface point."""
    coeffs = torch.zeros(1, 257)
    coeffs[0, 225] = 1.05
    vertex, _ = renderer.colours(coeffs)
    depth = vertex[..., 2:].expand(-1, -1, 3) / 2 + 0.5
    picture, cover = renderer.draw(vertex, depth)
    shown = (picture[0, 0] / cover[0, 0].clamp(min=1e-6)).numpy()
    xy = torch.stack(
        [1015 * vertex[0, :, 0] / (10 - vertex[0, :, 2]) + 112, 112 - 1015 * vertex[0, :, 1] / (10 - vertex[0, :, 2])],
        1,
    )
    cells = xy.floor().long().clamp(0, 223).numpy()
    margin = shown[cells[:, 1], cells[:, 0]] - depth[0, :, 0].numpy()
    assert np.quantile(margin, 0.02) > -0.03  # no vertex lies clearly in front of what is shown in its pixel
    assert (margin > 0.1).mean() > 0.02  # and some are hidden behind it


def test_there_are_no_holes_inside_the_face(renderer):
    _, cover = renderer.draw(*renderer.colours(torch.zeros(1, 257)))
    rows = cover[0, 0].numpy() > 0.5
    for row in rows[40:190]:
        filled = np.flatnonzero(row)
        assert len(filled) == filled.max() - filled.min() + 1


def test_photographs_repeat_with_their_seed(renderer):
    first = random_photographs(renderer, 2, torch.Generator().manual_seed(5))
    again = random_photographs(renderer, 2, torch.Generator().manual_seed(5))
    other = random_photographs(renderer, 2, torch.Generator().manual_seed(6))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[1], other[1])
    assert 0 <= first[0].min() <= first[0].max() <= 1
