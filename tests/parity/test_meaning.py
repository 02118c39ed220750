"""Changes of known size, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from face3d_trt.decode import Decoder
from face3d_trt.model.load import read_morphable
from face3d_trt.model.morphable import MorphableModel
from face3d_trt.names import GROUPS
from face3d_trt.parity import meaning
from face3d_trt.parity.meaning import MEASURES, Meter, find_similarity
from face3d_trt.parity.portrait import Portrait, visible

ANGLE, TRANSLATION = GROUPS["angle"], GROUPS["translation"]


@pytest.fixture(scope="module")
def decoder(standin: Path) -> Decoder:
    return Decoder.of(MorphableModel(read_morphable(standin / "assets/BFM_model_front.mat")))


@pytest.fixture(scope="module")
def meter(decoder: Decoder) -> Meter:
    return Meter(decoder, find_similarity())


@pytest.fixture
def face() -> np.ndarray:
    """One plausible face, turned, off the middle."""
    coeffs = np.random.default_rng(7).normal(0, 0.5, (1, 257)).astype(np.float32)
    coeffs[:, ANGLE] = (0.1, -0.3, 0.05)
    coeffs[:, GROUPS["lighting"]] *= 0.2
    coeffs[:, TRANSLATION] = (0.02, -0.03, 0.2)
    return coeffs


def changed(face: np.ndarray, at: int, by: float) -> np.ndarray:
    other = face.copy()
    other[:, at] += by
    return other


def measured(meter: Meter, one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    return {name: float(values[0]) for name, values in meter.measure(one, other).items()}


def test_the_same_coefficients_say_the_same_face(meter: Meter, face: np.ndarray) -> None:
    found = measured(meter, face, face)
    assert set(found) == {name for name in MEASURES if not name.startswith("mesh")}
    for name, value in found.items():
        best = 0 if MEASURES[name].better == "low" else 100 if MEASURES[name].unit == "dB" else 1
        assert value == pytest.approx(best, abs=1e-9), name


def test_a_millimetre_further_away_is_a_millimetre_of_every_vertex_and_none_of_shape(
    meter: Meter, face: np.ndarray
) -> None:
    found = measured(meter, face, changed(face, TRANSLATION.start + 2, 0.01))
    for name in ("translation", "vertex_mean", "vertex_p99", "vertex_max"):
        assert found[name] == pytest.approx(1, abs=1e-3), name
    assert found["shape_max"] == found["rotation"] == found["light_grey"] == 0
    assert found["albedo_psnr"] == found["shaded_psnr"] == 100


def test_landmarks_move_by_focal_length_over_distance(meter: Meter, decoder: Decoder, face: np.ndarray) -> None:
    """1 mm to the side, of a camera with 1015 px in 1000 mm distance from the origin."""
    found = measured(meter, face, changed(face, TRANSLATION.start, 0.01))
    shape = decoder.mean_shape + face[:, :144] @ decoder.shape_basis
    points = shape.reshape(-1, 3)[decoder.keypoints].astype(np.float64)
    turned = Rotation.from_euler("xyz", face[0, ANGLE]).apply(points) + face[0, TRANSLATION]
    pixels = 1015 * 1.0 / (1000 - 100 * turned[:, 2])
    assert found["landmark_mean"] == pytest.approx(pixels.mean(), abs=1e-3)
    assert found["landmark_max"] == pytest.approx(pixels.max(), abs=1e-3)


@pytest.mark.parametrize("degrees", [1e-3, 0.5, 7.0, 120.0])
def test_a_turn_by_a_known_angle_is_that_many_degrees(meter: Meter, face: np.ndarray, degrees: float) -> None:
    first = Rotation.from_euler("xyz", face[0, ANGLE].astype(np.float64))
    axis = np.array([2.0, -1.0, 0.5]) / np.linalg.norm([2.0, -1.0, 0.5])
    second = Rotation.from_rotvec(np.deg2rad(degrees) * axis) * first
    precise = face.astype(np.float64)
    precise[0, ANGLE] = first.as_euler("xyz")
    other = precise.copy()
    other[0, ANGLE] = second.as_euler("xyz")
    found = measured(meter, precise, other)
    assert found["rotation"] == pytest.approx(degrees, rel=1e-6)
    assert found["translation"] == found["shape_max"] == 0


def test_shape_errors_are_the_length_of_the_basis_vector(meter: Meter, decoder: Decoder, face: np.ndarray) -> None:
    found = measured(meter, face, changed(face, 3, 0.25))
    moved = 25 * np.linalg.norm(decoder.shape_basis[3].reshape(-1, 3).astype(np.float64), axis=1)
    assert found["shape_mean"] == pytest.approx(moved.mean(), abs=1e-3)
    assert found["shape_p99"] == pytest.approx(np.percentile(moved, 99), abs=1e-3)
    assert found["shape_max"] == pytest.approx(moved.max(), abs=1e-3)
    assert found["vertex_mean"] == pytest.approx(found["shape_mean"], abs=1e-3)  # a rotation keeps lengths


def grey(decoder: Decoder) -> Decoder:
    """The same head with a grey skin, the first texture coefficient of which makes it lighter all over."""
    basis = np.zeros_like(decoder.texture_basis)
    basis[0] = 1
    return replace(decoder, mean_texture=np.full_like(decoder.mean_texture, 0.4), texture_basis=basis)


def test_a_tenth_of_white_all_over_is_twenty_decibel(decoder: Decoder) -> None:
    zero = np.zeros((1, 257), np.float32)
    found = measured(Meter(grey(decoder), None), zero, changed(zero, 144, 0.1))
    assert found["albedo_psnr"] == pytest.approx(20, abs=1e-3)
    assert "albedo_ssim" not in found
    assert found["vertex_max"] == 0


def test_light_that_grows_by_a_share_changes_coefficients_and_grey_levels_by_it(decoder: Decoder) -> None:
    """Ambient light alone: the first harmonic is sqrt(pi) / 2 everywhere; a skin of 0.4 reflects 0.4 of it."""
    zero = np.zeros((1, 257), np.float32)
    brighter = zero.copy()
    brighter[:, [227, 236, 245]] = 0.08  # a tenth of the ambient 0.8, in each channel
    found = measured(Meter(grey(decoder), None), zero, brighter)
    assert found["light_relative"] == pytest.approx(10, abs=1e-3)
    assert found["light_grey"] == pytest.approx(255 * 0.4 * np.sqrt(np.pi) / 2 * 0.08, abs=1e-2)


def test_psnr_and_ssim_are_those_of_scikit_image_on_the_portrait(
    meter: Meter, decoder: Decoder, face: np.ndarray
) -> None:
    other = face + np.random.default_rng(0).normal(0, 1, face.shape).astype(np.float32)
    found = measured(meter, face, other)
    portrait = Portrait(decoder)
    one, two = (portrait.pictures(portrait.pixels(decoder.albedo(rows)))[0] for rows in (face, other))
    inside = portrait.mask
    assert found["albedo_psnr"] == pytest.approx(peak_signal_noise_ratio(one[inside], two[inside], data_range=1), 1e-4)
    _, local = structural_similarity(one, two, data_range=1, channel_axis=-1, full=True)
    assert found["albedo_ssim"] == pytest.approx(local[inside].mean(), abs=1e-4)
    assert 0.5 < found["albedo_ssim"] < 0.9999


def test_a_fold_of_the_surface_says_nothing_about_shading(
    decoder: Decoder, face: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its normal turns with any rounding; before, one such face of 256 decided about an fp16 engine."""
    mean = decoder.mean_shape.reshape(-1, 3).copy()
    tip = int(decoder.keypoints[30])
    ring = np.unique(decoder.triangles[(decoder.triangles == tip).any(axis=1)])
    inner = np.unique(decoder.triangles[np.isin(decoder.triangles, ring).any(axis=1)])
    mean[inner] = mean[tip] + np.linspace(0, 0.1, len(inner))[:, None] * np.float32([1, 0, 0])
    meter = Meter(decoder, None)
    meter.decoder = replace(decoder, mean_shape=mean.reshape(decoder.mean_shape.shape))
    lit = np.zeros_like(face)
    lit[:, GROUPS["lighting"]][:, 2::9] = 0.4  # from the front, so that it matters where a normal points
    rounded = lit.copy()
    rounded[:, GROUPS["identity"]] = 1e-4
    assert meter.measure(lit, rounded)["shaded_psnr"][0] > 70
    monkeypatch.setattr(meaning, "FOLD_MM", 0.0)
    assert meter.measure(lit, rounded)["shaded_psnr"][0] < 50


def test_rows_that_are_not_finite_are_the_worst_and_leave_the_others_alone(meter: Meter, face: np.ndarray) -> None:
    rows = np.concatenate([face, face, face, face])
    rows[1, 5], rows[2, 0], rows[3, TRANSLATION.start + 2] = np.nan, np.inf, 1e30
    found = meter.measure(face, rows)
    assert all(np.isfinite(values[0]) for values in found.values())
    for name, values in found.items():
        assert (values[1:3] == MEASURES[name].worst).all(), name
    assert found["vertex_mean"][3] > 1e6


def test_many_rows_are_measured_each_against_its_own(meter: Meter, face: np.ndarray) -> None:
    rows = np.concatenate([changed(face, 0, step / 10) for step in range(11)])
    found = meter.measure(rows, np.roll(rows, 1, axis=0))
    single = [measured(meter, rows[[i]], rows[[i - 1]])["shape_mean"] for i in range(11)]
    np.testing.assert_allclose(found["shape_mean"], single, rtol=1e-4)


def test_the_nearest_of_two_squares_is_seen_and_weights_are_those_of_the_point() -> None:
    """Two squares of 100 mm at z = 0 and, smaller, at z = 1; the camera is above."""
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], float) / 2
    points = np.concatenate([np.column_stack([square, np.zeros(4)]), np.column_stack([square / 2, np.ones(4)])])
    pixels, corners, weights = visible(points, np.array([[0, 1, 2], [0, 2, 3], [4, 5, 6], [4, 6, 7]]))
    rows, columns = np.divmod(pixels, 224)
    assert len(pixels) == pytest.approx((1015 * 1.0 / 10) ** 2, rel=0.02)
    near = (corners >= 4).all(axis=1)
    assert near.sum() == pytest.approx((1015 * 0.5 / 9) ** 2, rel=0.03)
    assert (np.abs(rows[near] - 111.5) < 29).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    x = (weights * points[corners, 0]).sum(axis=1)
    np.testing.assert_allclose(x, (columns + 0.5 - 112) / 1015 * np.where(near, 9, 10), atol=1e-6)


def test_the_portrait_fills_the_face_without_holes(decoder: Decoder) -> None:
    mask = Portrait(decoder).mask
    for line in (*mask, *mask.T):
        inside = np.flatnonzero(line)
        assert len(inside) == inside[-1] - inside[0] + 1  # the mean face's outline is convex
