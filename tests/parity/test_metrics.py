"""The figures against the formulas written out in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from face3d_trt.parity.metrics import ErrorSums, Scale, parts, scale


def names(count: int) -> list[str]:
    return [f"picture {index}" for index in range(count)]


def test_groups_cover_the_coefficients_once() -> None:
    covered = np.zeros(257, int)
    for group, columns in parts("coeffs"):
        covered[columns] += group is not None
    assert (covered == 1).all()
    assert [group for group, _ in parts("vertex")] == [None]


def test_relative_error_is_norm_of_error_over_norm_of_variation() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(3, 0.2, (12, 80)).astype(np.float32)
    candidate = reference + rng.normal(0, 0.01, reference.shape).astype(np.float32)
    sums = ErrorSums(scale(reference))
    for start in range(0, 12, 4):  # three batches give what one would
        sums.add(reference[start : start + 4], candidate[start : start + 4], names(4))
    figures = sums.figures()
    error = candidate.astype(np.float64) - reference
    variation = reference.astype(np.float64) - reference.astype(np.float64).mean(0)
    assert figures.relative == pytest.approx(np.linalg.norm(error) / np.linalg.norm(variation), rel=1e-9)
    assert figures.max_abs == pytest.approx(np.abs(error).max(), rel=1e-9)
    assert figures.mean_abs == pytest.approx(np.abs(error).mean(), rel=1e-9)
    a, b = candidate.astype(np.float64).ravel(), reference.astype(np.float64).ravel()
    assert figures.cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-12)
    assert figures.rows == 12


def test_a_mean_that_all_pictures_share_does_not_make_the_error_small() -> None:
    reference = np.array([[1000.0, 0.0], [1001.0, 0.0]], np.float32)
    sums = ErrorSums(scale(reference))
    sums.add(reference, reference + np.float32(0.5), names(2))
    # each picture is 0.5 from the mean, each row is off by 0.5 in both columns: sqrt(2) of the variation
    assert sums.figures().relative == pytest.approx(math.sqrt(2))


def test_worst_row_is_found_beyond_the_first_piece_and_named() -> None:
    reference = np.random.default_rng(0).normal(size=(70, 5, 3)).astype(np.float32)
    candidate = reference.copy()
    candidate[69, 2, 1] += 4
    sums = ErrorSums(Scale(2.0, "variation", 70))
    sums.add(reference, candidate, names(70))
    figures = sums.figures()
    assert (figures.worst_row, figures.worst_image) == (69, "picture 69")
    assert figures.worst == pytest.approx(2.0, rel=1e-6)
    assert figures.relative == pytest.approx(math.sqrt(16 / 70) / 2, rel=1e-6)


@pytest.mark.parametrize(("value", "nan", "inf"), [(np.nan, 1, 0), (np.inf, 0, 1), (-np.inf, 0, 1)])
def test_values_that_are_not_finite_are_counted_and_never_pass_for_small(value: float, nan: int, inf: int) -> None:
    reference = np.ones((4, 3), np.float32)
    candidate = reference.copy()
    candidate[2, 1] = value
    sums = ErrorSums(Scale(1.0, "variation", 4))
    sums.add(reference, candidate, names(4))
    figures = sums.figures()
    assert (figures.nan, figures.inf) == (nan, inf)
    assert figures.max_abs == figures.relative == math.inf
    assert math.isnan(figures.cosine)
    assert figures.worst_image == "picture 2"


def test_infinities_that_agree_with_the_reference_do_not_pass_either() -> None:
    both = np.array([[np.inf, 1.0]], np.float32)
    sums = ErrorSums(scale(both))
    sums.add(both, both, names(1))
    assert sums.figures().inf == 1
    assert sums.figures().relative == math.inf


def test_without_variation_the_size_is_the_scale() -> None:
    still = np.full((8, 4), 3.0, np.float32)
    assert scale(still) == Scale(6.0, "magnitude", 8)
    noisy = still + np.random.default_rng(0).normal(0, 1e-7, still.shape).astype(np.float32)
    assert scale(noisy).kind == "magnitude"


def test_a_reference_of_zeros_divides_by_one() -> None:
    zeros = np.zeros((8, 4), np.float32)
    assert scale(zeros) == Scale(1.0, "unit", 8)
    sums = ErrorSums(scale(zeros))
    sums.add(zeros, zeros, names(8))
    assert sums.figures().cosine == 1.0
    sums.add(zeros, zeros + 1, names(8))
    assert sums.figures().cosine == 0.0
