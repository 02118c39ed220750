"""Statistics of the proof against what they have to be by hand."""

from __future__ import annotations

import itertools
import os

import pytest
from tools.proof.stats import alternately, fastest, gpu_growth, growth, latencies, steady

from face3d_trt.monitor.memory import GpuMemory


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


@pytest.mark.parametrize(
    ("samples", "grown"),
    [
        ([7, 7, 7], 0),
        ([7, 5, 6], 0),
        ([7, 9, 8], 1),
        ([], 0),
        ([3], 0),
        (list(range(100)), 90),  # a leak: the median of 90 to 99 over that of 0 to 9
        ([5] * 62 + [1700, 1704, 560] + [5] * 35, 0),  # somebody else came and went
        ([5] * 99 + [1700], 0),
        ([1700] + [5] * 60 + [6] * 39, 1),
    ],
)
def test_growth_is_what_is_there_at_the_end_and_was_not_at_the_beginning(samples: list[int], grown: int) -> None:
    assert growth(samples) == grown


def test_gpu_memory_is_that_of_this_process_where_it_is_known_all_the_time() -> None:
    others_grow = [(100, 1000 + each) for each in range(50)]
    assert gpu_growth(others_grow) == {"gpu_growth": 0, "gpu_by": "this process", "gpu_samples": [100] * 50}
    unknown = [(None, 1000), *others_grow[1:]]
    assert (gpu_growth(unknown)["gpu_growth"], gpu_growth(unknown)["gpu_by"]) == (45, "the whole GPU")


class Listed(GpuMemory):
    """What NVML lists, bytes by process, in place of NVML."""

    def __init__(self, *lists: dict[int, int] | None) -> None:
        self._lists = iter(lists)
        self._others, self._own = set(self.processes() or ()), None

    def processes(self) -> dict[int, int] | None:
        return next(self._lists)


def test_this_process_is_found_among_those_of_a_container_and_stays_the_same_one() -> None:
    memory = Listed({11: 5}, {11: 5, 12: 7}, {11: 5, 12: 8, 13: 900}, {11: 5, 13: 900}, None)
    assert [memory.process() for _ in range(4)] == [7, 8, 0, None]


def test_two_that_came_at_once_cannot_be_told_apart_unless_one_has_this_number() -> None:
    assert Listed({}, {12: 7, 13: 8}).process() is None
    assert Listed({}, {os.getpid(): 7, 13: 8}).process() == 7


def test_the_faster_way_is_taken() -> None:
    slow, fast = itertools.cycle([4_600_000, 8_000_000, 620_000]), itertools.cycle([700_000])
    best, medians = fastest({"torch": lambda: next(slow), "numpy": lambda: next(fast)}, 30)
    assert (best, medians) == ("numpy", {"torch": 4.6, "numpy": 0.7})
