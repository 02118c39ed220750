from __future__ import annotations

import time

import numpy as np
import pytest
from PIL import Image

from face3d_trt.errors import FaceError, ModelError
from face3d_trt.faces.align import align, fit_orthography


@pytest.fixture
def photo():
    """Noise on a gradient, 640x480: every part differs from every other."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[0:480, 0:640]
    smooth = np.stack([x * 255 / 640, y * 255 / 480, (x + y) * 255 / 1120], axis=-1)
    return np.clip(smooth + rng.normal(0, 25, smooth.shape), 0, 255).astype(np.uint8)


def rotation(pitch, yaw, roll):
    (a, b, c), (s, t, u) = np.cos((pitch, yaw, roll)), np.sin((pitch, yaw, roll))
    rx = np.array([[1, 0, 0], [0, a, -s], [0, s, a]])
    ry = np.array([[b, 0, t], [0, 1, 0], [-t, 0, b]])
    rz = np.array([[c, -u, 0], [u, c, 0], [0, 0, 1]])
    return rz @ ry @ rx


def seen(template, px_per_unit, centre, height, angles=(0, 0, 0)):
    """The template's points in a photo of `height` rows by scaled orthography; centre in px, y down."""
    turned = template @ rotation(*angles).T
    return np.stack([centre[0] + px_per_unit * turned[:, 0], centre[1] - px_per_unit * turned[:, 1]], axis=1)


def test_the_five_points_land_where_102_px_per_100_mm_put_them(photo):
    rng = np.random.default_rng(0)
    for _ in range(40):
        template = np.array([(-0.3, 0.3, 0.1), (0.3, 0.3, 0.1), (0, 0, 0.5), (-0.25, -0.4, 0.2), (0.25, -0.4, 0.2)])
        template += rng.normal(0, 0.02, template.shape)
        size, centre = rng.uniform(30, 400), rng.uniform((150, 150), (490, 330))
        aligned = align(photo, seen(template, size, centre, 480), template)
        wanted = np.stack([112 + 102 * template[:, 0], 112 - 102 * template[:, 1]], axis=1)
        found = aligned.to_crop(seen(template, size, centre, 480))
        # Upstream cuts at whole px, and its rows are one px of the photo off.
        assert np.abs(found - wanted).max() < 2 + 102 / size


def test_scaled_orthography_is_recovered_from_any_view(template):
    rng = np.random.default_rng(1)
    for _ in range(30):
        angles = rng.uniform(-0.9, 0.9, 3)
        size, centre = rng.uniform(20, 500), rng.uniform(0, 1000, 2)
        points = centre + size * (template @ rotation(*angles).T)[:, :2]
        origin, scale = fit_orthography(points, template)
        assert np.allclose(origin, centre, atol=1e-6)
        assert scale == pytest.approx(size)


def whole_image(image, points, template, size=224):
    """Upstream's way, step by step: fit, resize the whole photo, crop."""
    height, width = image.shape[:2]
    flipped = points * (1, -1) + (0, height - 1)
    design = np.zeros((10, 8))
    design[0::2, 0:3] = design[1::2, 4:7] = template
    design[0::2, 3] = design[1::2, 7] = 1
    k = np.linalg.lstsq(design, flipped.reshape(-1), rcond=None)[0]
    s = 102 * size / 224 / ((np.linalg.norm(k[0:3]) + np.linalg.norm(k[4:7])) / 2)
    w, h = int(width * s), int(height * s)
    left = int(w / 2 - size / 2 + (k[3] - width / 2) * s)
    up = int(h / 2 - size / 2 + (height / 2 - k[7]) * s)
    resized = Image.fromarray(image).resize((w, h), Image.Resampling.BICUBIC)
    return np.asarray(resized.crop((left, up, left + size, up + size)))


@pytest.mark.parametrize("px_per_unit", [31, 55.5, 101, 102.3, 103.7, 230, 399])
@pytest.mark.parametrize("centre", [(320, 240), (30, 40), (600, 450), (300.4, 15)])
@pytest.mark.parametrize("size", [224, 512])
def test_the_crop_is_that_of_the_whole_resized_photo(photo, template, px_per_unit, centre, size):
    points = seen(template, px_per_unit, centre, 480, (0.1, 0.2, 0.3))
    wanted = whole_image(photo, points, template, size)
    found = align(photo, points, template, size).crop
    assert found.shape == (size, size, 3)
    assert np.abs(found.astype(int) - wanted).max() <= 1  # Pillow takes the box as float32
    assert (found != wanted).mean() < 0.01


@pytest.mark.parametrize("px_per_unit", [30, 90, 260])
def test_the_map_tells_where_pixels_went(template, px_per_unit):
    """Dots are drawn into the photo; their centres of mass in the crop lie where `to_crop` says."""
    points = seen(template, px_per_unit, (333.3, 201.7), 480, (0, 0.1, -0.2))
    y, x = np.mgrid[0:480, 0:640]
    radius = px_per_unit / 30
    for point in points:
        dot = 255 * np.exp(-((x - point[0]) ** 2 + (y - point[1]) ** 2) / (2 * radius**2))
        aligned = align(np.repeat(dot.astype(np.uint8)[..., None], 3, axis=2), points, template)
        mass = aligned.crop[..., 0].astype(float)
        v, u = np.mgrid[0:224, 0:224]
        centre = np.array([(mass * u).sum(), (mass * v).sum()]) / mass.sum()
        assert np.abs(centre - aligned.to_crop(point[None])[0]).max() < 0.15


def test_the_map_goes_back(photo, template):
    aligned = align(photo, seen(template, 77, (300, 200), 480), template)
    points = np.random.default_rng(2).uniform(0, 224, (9, 2))
    assert np.allclose(aligned.to_crop(aligned.to_photo(points)), points)


def test_the_map_as_a_matrix(photo, template):
    aligned = align(photo, seen(template, 90, (300, 200), 480), template)
    points = np.array([[0, 0], [639, 479], [12.5, 300]])
    assert np.allclose(np.c_[points, np.ones(3)] @ aligned.crop_from_photo.T, aligned.to_crop(points), atol=1e-9)


def test_outside_the_photo_is_black(template):
    white = np.full((480, 640, 3), 255, np.uint8)
    aligned = align(white, seen(template, 102, (20, 240), 480), template)
    assert aligned.offset[0] < 0
    assert (aligned.crop[:, : -aligned.offset[0]] == 0).all()
    assert (aligned.crop[:, -aligned.offset[0] :] == 255).all()


def test_the_roll_stays_in_the_picture(photo, template):
    points = seen(template, 90, (320, 240), 480, (0, 0, np.radians(25)))
    left, right = align(photo, points, template).to_crop(points)[:2]
    assert np.degrees(np.arctan2(left[1] - right[1], right[0] - left[0])) == pytest.approx(25, abs=0.5)


def test_a_tiny_face_in_a_large_photo_costs_no_large_resize(template):
    """Resized as a whole, this photo would have 68,000x51,000 pixels: 10 GB."""
    image = np.zeros((3000, 4000, 3), np.uint8)
    start = time.perf_counter()
    aligned = align(image, seen(template, 6, (2000, 1500), 3000), template)
    assert time.perf_counter() - start < 0.5
    assert aligned.crop.shape == (224, 224, 3)


FRONT = np.array([(200, 100), (262, 100), (231, 130), (205, 165), (256, 165)], dtype=float)


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        (np.full((5, 2), 100.0), "no face to see"),
        (FRONT / 100 + 200, "no face to see"),
        (np.stack([np.linspace(10, 300, 5), np.linspace(20, 200, 5)], axis=1), "on one line"),
        (np.where(np.eye(5, 2) == 1, np.nan, FRONT), "not a finite number"),
        (np.where(np.eye(5, 2) == 1, np.inf, FRONT), "not a finite number"),
        (FRONT + 1000, "outside the picture of 640x480"),
        (FRONT - 1000, "outside the picture"),
        (FRONT[[1, 0, 2, 4, 3]], "swapped"),
        (FRONT * (1, -1) + (0, 400), "swapped"),
        (FRONT[:4], "five points"),
        (np.zeros((68, 2)), "five points"),
    ],
)
def test_points_that_are_no_face_are_told_apart(photo, template, points, problem):
    with pytest.raises(FaceError, match=problem):
        align(photo, points, template)


def test_a_face_upside_down_is_a_face(photo, template):
    points = seen(template, 90, (320, 240), 480, (0, 0, np.pi))
    assert align(photo, points, template).crop.shape == (224, 224, 3)


@pytest.mark.parametrize("angles", [(0, 1.3, 0), (0, -1.3, 0.4), (0.8, 0, 0), (-0.8, 0.5, 0)])
def test_profiles_and_nods_are_faces(photo, template, angles):
    rng = np.random.default_rng(4)
    points = seen(template, 90, (320, 240), 480, angles) + rng.normal(0, 2, (5, 2))
    assert align(photo, points, template).crop.shape == (224, 224, 3)


@pytest.mark.parametrize("bad", [np.zeros((5, 3)), np.full((5, 3), np.nan), np.ones((68, 3)), np.zeros((5, 2))])
def test_a_useless_template_is_the_models_fault(photo, bad):
    with pytest.raises(ModelError, match="template"):
        align(photo, FRONT, bad)
