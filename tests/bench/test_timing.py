"""Windows, turns and percentiles against what they have to be by hand."""

from __future__ import annotations

import itertools

import pytest

from face3d_trt.bench.timing import alternately, fastest, latencies, steady


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
    assert tuple(found[name] for name in ("p50", "p90", "p95", "p99")) == (50.0, 90.0, 95.0, 99.0)
    assert (found["min"], found["max"], found["calls"]) == (0.0, 100.0, 101)


def test_the_faster_way_is_taken() -> None:
    slow, fast = itertools.cycle([4_600_000, 8_000_000, 620_000]), itertools.cycle([700_000])
    best, medians = fastest({"torch": lambda: next(slow), "numpy": lambda: next(fast)}, 30)
    assert (best, medians) == ("numpy", {"torch": 4.6, "numpy": 0.7})
