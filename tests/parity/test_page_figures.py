"""The pictures and diagrams of the report: pixels and coordinates where independent reasoning puts them."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image
from tests.parity.pages import exhibit, made

from face3d_trt.decode import project
from face3d_trt.names import GROUPS
from face3d_trt.parity.page.axis import axis_between, axis_to
from face3d_trt.parity.page.faces import SCALE, draw
from face3d_trt.parity.page.spread import BASE, LEFT, RIGHT, TOP, panels
from face3d_trt.parity.page.words import answer, percent, shorten
from face3d_trt.parity.portrait import LARGE, visible
from face3d_trt.parity.strain import strain

if TYPE_CHECKING:
    from face3d_trt.decode import Decoder


def pixels(uri: str | None) -> np.ndarray:
    assert uri is not None
    picture = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    return np.asarray(picture.convert("RGBA")).astype(int)


def coeffs(**groups: object) -> np.ndarray:
    values = np.zeros(257, np.float32)
    for group, value in groups.items():
        values[GROUPS[group]] = value
    return values


def test_a_shift_of_the_whole_head_is_one_colour_posed_and_none_in_shape(decoder: Decoder) -> None:
    drawn = draw([exhibit(coeffs(), coeffs(translation=(0.02, 0, 0)))], decoder)
    posed, shape = drawn.maps
    assert (posed.axis.high, shape.axis.high) == (2.0, 1.0)  # 2 mm; of nothing the scale is 1
    face = pixels(posed.pictures[0])
    inside = face[face[..., 3] == 255][:, :3]
    top, bottom = (np.array(colormaps["viridis"](share, bytes=True)[:3], int) for share in (1.0, 0.0))
    assert np.abs(np.median(inside, axis=0) - top).max() <= 6  # WebP loses a little
    flat = pixels(shape.pictures[0])
    assert np.abs(np.median(flat[flat[..., 3] == 255][:, :3], axis=0) - bottom).max() <= 6
    assert (face[..., 3] == 255).mean() == pytest.approx((flat[..., 3] == 255).mean())


def test_an_error_is_seen_where_it_is(decoder: Decoder) -> None:
    """A morphable model whose first expression moves the lower third of the face, and nothing else."""
    mean = decoder.mean_shape.reshape(-1, 3)
    border = np.quantile(mean[:, 1], 1 / 3)
    basis = np.zeros_like(decoder.shape_basis)
    basis[80] = np.where(mean[:, [1]] < border, (0.0, 0.0, 0.04), 0.0).reshape(-1)
    drawn = draw([exhibit(coeffs(), coeffs(expression=np.eye(64)[0]))], replace(decoder, shape_basis=basis))
    assert drawn.maps[1].axis.high == 4.0  # mm
    picture = pixels(drawn.maps[1].pictures[0])
    line = int(project(np.array([[0, border, mean[:, 2].max()]]))[0, 1] * SCALE)
    colours = [part[part[..., 3] == 255][:, :3] for part in (picture[: line - 40], picture[line + 40 :])]
    for part, share in zip(colours, (0.0, 1.0), strict=True):
        assert np.abs(np.median(part, axis=0) - colormaps["viridis"](share, bytes=True)[:3]).max() <= 6


def test_the_mesh_lies_where_the_camera_projects_it(decoder: Decoder) -> None:
    drawn = draw([exhibit(coeffs(), coeffs(translation=(0.2, 0, 0)))], decoder)
    one, other = (pixels(uri)[..., 3] > 0 for uri in (drawn.references[0], drawn.answers[0]))
    vertices = project(decoder.mean_shape.reshape(-1, 3)) * SCALE
    columns = np.flatnonzero(one.any(axis=0))
    assert columns[0] == pytest.approx(vertices[:, 0].min(), abs=1.5)
    assert columns[-1] == pytest.approx(vertices[:, 0].max(), abs=1.5)
    shift = np.flatnonzero(other.any(axis=0))[0] - columns[0]
    assert shift == pytest.approx(
        0.2 * 101.5 * SCALE, rel=0.1
    )  # 1015 px focal length at 10 units, rim nearer or further


def test_large_and_small_triangles_are_drawn_alike() -> None:
    """One triangle, cut into many: the same pixels."""
    corners = np.array([[-0.9, -0.8, 0.1], [0.9, -0.7, 0.0], [0.1, 0.9, -0.1]])
    steps = 24
    grid = [(i / steps, j / steps) for i in range(steps + 1) for j in range(steps + 1 - i)]
    index = {(round(u * steps), round(v * steps)): at for at, (u, v) in enumerate(grid)}
    points = np.array([corners[0] + u * (corners[1] - corners[0]) + v * (corners[2] - corners[0]) for u, v in grid])
    small = [(index[i, j], index[i + 1, j], index[i, j + 1]) for i in range(steps) for j in range(steps - i)]
    small += [
        (index[i + 1, j], index[i + 1, j + 1], index[i, j + 1]) for i in range(steps) for j in range(steps - 1 - i)
    ]
    whole, _, _ = visible(corners, np.array([[0, 1, 2]]))
    pieces, _, weights = visible(points, np.array(small))
    assert np.ptp(project(corners), axis=0).min() > LARGE
    assert len(np.setxor1d(whole, pieces)) <= 2  # a seam's rounding
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    assert len(visible(corners + np.array([9, 0, 0]), np.array([[0, 1, 2]]))[0]) == 0  # beside the picture


@pytest.mark.parametrize(
    "wrong",
    [coeffs(translation=np.nan), coeffs(translation=(0, 0, 12)), coeffs(identity=3e4), coeffs(expression=np.inf)],
    ids=["NaN", "behind the camera", "torn", "infinite"],
)
def test_what_is_no_face_is_not_drawn_and_the_rest_is(decoder: Decoder, wrong: np.ndarray) -> None:
    drawn = draw([exhibit(coeffs(), wrong), exhibit(coeffs(), coeffs(angle=0.1))], decoder)
    assert drawn.answers[0] is None
    assert drawn.references[0] is not None
    for maps in drawn.maps:
        assert maps.pictures[0] is None
        assert maps.pictures[1] is not None
        assert np.isfinite(maps.axis.high)


def test_ticks_are_round_and_inside() -> None:
    assert axis_to(6.2).ticks == (0, 2, 4, 6, 8)
    assert [label for _, label in axis_to(0.037).labels] == ["0.00", "0.01", "0.02", "0.03", "0.04"]
    assert [label for _, label in axis_to(9.1).labels] == ["0.0", "2.5", "5.0", "7.5", "10.0"]
    assert axis_to(0.0).high == 1.0
    axis = axis_between(40.0, 24.0)  # dB: more is better, worse is right
    assert axis.ticks == (40, 36, 32, 28, 24)
    assert (axis.at(40), axis.at(32), axis.at(24), axis.at(0)) == (0, 0.5, 1, 1)
    assert axis_between(1.0, 1.0).ticks


def dots(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", path)]


def test_every_picture_is_a_dot_and_worse_is_right() -> None:
    values = [0.5 + 0.1 * at for at in range(10)]
    verdict = made({"rotation": values, "albedo_psnr": [40.0 - at for at in range(10)]}, list("abcdefghij")).verdict
    for panel in panels(verdict.meaning, verdict.faces):
        found = dots(panel.good)
        assert len(found) == 10
        assert [x for x, _ in found] == sorted(x for x, _ in found)
        assert all(LEFT <= x <= RIGHT and TOP < y < BASE for x, y in found)
        assert panel.bad == ""
        limits = {limit.name: limit.x for limit in panel.limits}
        assert panel.median is not None
        assert panel.median < limits["worst"]


def test_hundreds_of_equal_errors_stay_inside_and_what_is_too_large_is_marked() -> None:
    names = [f"{at}.jpg" for at in range(400)]
    verdict = made({"rotation": [0.3] * 398 + [5.0, float("inf")]}, names).verdict
    (panel,) = panels(verdict.meaning, verdict.faces)
    assert min(y for _, y in dots(panel.good)) > TOP - 1
    assert [x for x, _ in dots(panel.bad)][-1] == RIGHT
    assert len(dots(panel.bad)) == 2
    assert "1 not finite" in panel.text


@pytest.mark.parametrize(
    ("measure", "value", "allowed", "used"),
    [
        ("rotation", 0.5, 2.0, 0.25),
        ("albedo_psnr", 46.0206, 40.0, 0.5),  # half the amplitude is 6.02 dB
        ("shaded_ssim", 0.99, 0.98, 0.5),
        ("rotation", float("inf"), 2.0, float("inf")),
        ("albedo_psnr", float("-inf"), 26.0, float("inf")),
        ("shaded_ssim", float("-inf"), 0.98, float("inf")),
        ("shaded_ssim", 1.0, 0.98, 0.0),
        ("rotation", 0.1, 0.0, float("inf")),
    ],
)
def test_a_share_of_a_limit(measure: str, value: float, allowed: float, used: float) -> None:
    assert strain(measure, value, allowed) == pytest.approx(used, rel=1e-4)


def test_words() -> None:
    assert [percent(share) for share in (0.0, 0.004, 0.5, 1.384, 12.2)] == [
        "< 1 %",
        "< 1 %",
        "50 %",
        "138 %",
        "12 times",
    ]
    assert percent(float("inf")) == "no share"
    assert shorten("a" * 30 + "b" * 30, 21) == "a" * 10 + "…" + "b" * 10
    assert shorten("short.jpg") == "short.jpg"
    assert answer([True]) == "The plan passed."
    assert answer([True, True]) == "All 2 plans passed."
    assert answer([True, False]) == "1 of 2 plans passed."
    assert answer([False, False]) == "None of 2 plans passed."
