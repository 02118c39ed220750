import numpy as np
import pytest
import torch
from tests.model.decode_in_numpy import decode

from face3d_trt.model.load import read_morphable
from face3d_trt.model.morphable import MorphableModel, project, rotation


@pytest.fixture(scope="module")
def morphable(standin):
    return MorphableModel(read_morphable(standin / "assets/BFM_model_front.mat"))


def random_coeffs(count):
    rng = np.random.default_rng(3)
    coeffs = rng.normal(size=(count, 257)).astype(np.float32)
    coeffs[:, 224:227] *= 0.4
    coeffs[:, 254:257] *= 0.2
    return coeffs


def test_decode_equals_the_published_formulas(morphable, standin):
    coeffs = random_coeffs(5)
    vertex, albedo = morphable(torch.from_numpy(coeffs))
    landmarks = morphable.landmarks(vertex)
    want_vertex, want_albedo, want_landmarks = decode(standin, coeffs)
    assert vertex.dtype == albedo.dtype == torch.float32
    np.testing.assert_allclose(vertex.numpy(), want_vertex, atol=1e-5)
    np.testing.assert_allclose(albedo.numpy(), want_albedo, atol=1e-5)
    np.testing.assert_allclose(landmarks.numpy(), want_landmarks, atol=2e-3)


def test_positive_yaw_turns_the_nose_to_positive_x():
    nose = torch.tensor([0.0, 0.0, 1.0])
    turned = rotation(torch.tensor([[0.0, 0.3, 0.0]]))[0] @ nose
    torch.testing.assert_close(turned, torch.tensor([np.sin(0.3), 0.0, np.cos(0.3)], dtype=torch.float32))


def test_the_camera_looks_at_the_origin_from_ten_units_with_12_6_degrees():
    top = 10 * np.tan(np.deg2rad(12.594 / 2))  # half of the field of view, upstream's published angle
    points = torch.tensor([[0.0, 0.0, 0.0], [0.0, top, 0.0]])
    np.testing.assert_allclose(project(points).numpy(), [[112, 112], [112, 0]], atol=0.02)


def test_zero_coefficients_give_the_mean_face_centred(morphable):
    vertex, _ = morphable(torch.zeros(1, 257))
    np.testing.assert_allclose(vertex[0].mean(0).numpy(), 0, atol=1e-6)
