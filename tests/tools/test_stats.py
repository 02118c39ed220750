"""Statistics of the proof against what they have to be by hand."""

from __future__ import annotations

import itertools

import pytest
from tools.proof.stats import alternately, growth, latencies, steady


def test_a_measurement_ends_once_three_windows_agree() -> None:
    windows = iter([9.0, 5.0, 4.02, 4.0, 4.1, 999.0])
    found = steady(lambda: next(windows))
    assert (found.value, found.stable) == (4.02, True)
    assert found.windows == (9.0, 5.0, 4.02, 4.0, 4.1)
    assert found.spread == pytest.approx(4.1 / 4.0 - 1)


def test_a_machine_that_never_settles_is_marked_and_gives_its_calmest_stretch() -> None:
    windows = itertools.cycle([1.0, 2.0, 3.0, 4.0, 4.4, 4.8, 1.0])
    found = steady(lambda: next(windows), most=14)
    assert not found.stable
    assert found.value == 4.4
    assert len(found.windows) == 14


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_window_that_measured_nothing_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="window measured"):
        steady(lambda: value)


def test_turns_cancel_a_drift_that_would_look_like_a_difference() -> None:
    slow = itertools.count(100, 1)  # the machine gets slower with every window
    first, second = alternately(lambda: next(slow) * 1.0, lambda: next(slow) * 1.1, rounds=51)
    assert second / first == pytest.approx(1.1, rel=0.01)


def test_percentiles_of_calls_are_milliseconds() -> None:
    calls = [1_000_000 * n for n in range(101)]  # 0 to 100 ms, evenly: the p-th percentile is p ms
    found = latencies(calls[::-1])
    assert (found["p50"], found["p90"], found["p99"]) == (50.0, 90.0, 99.0)
    assert (found["min"], found["max"], found["calls"]) == (0.0, 100.0, 101)


@pytest.mark.parametrize(("samples", "grown"), [([7, 7, 7], 0), ([7, 5, 6], 0), ([7, 9, 8], 2), ([], 0), ([3], 0)])
def test_growth_is_the_furthest_above_the_first_sample(samples: list[int], grown: int) -> None:
    assert growth(samples) == grown
