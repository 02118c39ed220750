"""Memory figures of the proof against what they have to be by hand."""

from __future__ import annotations

import os

import pytest
from tools.proof.stats import gpu_growth, growth

from face3d_trt.monitor.memory import GpuMemory


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
