"""Limits on temperature and memory: what batch they allow, over a time that the tests let pass."""

from __future__ import annotations

import pytest

from face3d_trt.errors import UsageError
from face3d_trt.monitor.limits import RECOVER_S, SETTLE_S, Governor, Limits
from face3d_trt.monitor.nvml import Sampler
from face3d_trt.monitor.tally import Reading


class World:
    """A GPU whose reading is set by hand, and a clock that is."""

    def __init__(self, limits: Limits) -> None:
        self.now, self.reading, self.said = 0.0, Reading(temperature_c=50.0, memory_used=10, memory_total=100), []
        self.governor = Governor(limits, lambda: self.reading, report=self, clock=lambda: self.now)

    def stage(self, text: str) -> None:
        self.said.append(text)

    warn = stage

    def at(self, celsius: float, used: int = 10) -> None:
        self.reading = Reading(temperature_c=celsius, memory_used=used, memory_total=100)

    def runs(self, seconds: float, asked: int = 64) -> list[int]:
        """The different batches of the next so many seconds, one asked for every tenth."""
        sizes = []
        for _ in range(round(seconds * 10)):
            sizes.append(self.governor.batch(asked))
            self.now += 0.1
        return [size for place, size in enumerate(sizes) if place == 0 or size != sizes[place - 1]]


SOME_GPU = pytest.mark.parametrize("some_gpu", ["double", pytest.param("real", marks=pytest.mark.gpu)], indirect=True)
HOT = Limits(temperature_c=85.0)


def test_within_its_limits_a_gpu_gets_what_is_asked_for() -> None:
    world = World(Limits(temperature_c=85.0, memory=0.9))
    world.at(85.0, 90)  # at the limit is within
    assert world.runs(60) == [64]
    assert world.governor.allowed is None
    assert world.said == []


def test_a_hot_gpu_gets_half_and_half_again_until_it_cools() -> None:
    world = World(HOT)
    world.at(88)
    assert world.runs(2.5 * SETTLE_S) == [32, 16, 8]
    assert len(world.said) == 3
    assert "88 °C, limit 85" in world.said[0]
    assert "batches of 32 instead of 64" in world.said[0]


def test_a_smaller_batch_is_given_time_to_show() -> None:
    world = World(HOT)
    world.at(88)
    assert world.runs(SETTLE_S - 0.5) == [32]


def test_one_picture_is_the_least_and_said_once() -> None:
    world = World(HOT)
    world.at(99)
    assert world.runs(20 * SETTLE_S)[-1] == 1
    assert len(world.said) == 6 + 1  # 32, 16, 8, 4, 2, 1, and that one is not enough
    assert "at batches of 1" in world.said[-1]


def test_it_doubles_back_once_the_gpu_has_been_cool_for_a_while() -> None:
    world = World(HOT)
    world.at(88)
    world.runs(1.5 * SETTLE_S)
    world.at(70)
    assert world.runs(RECOVER_S - 1) == [16]
    assert world.runs(3 * RECOVER_S) == [16, 32, 64]
    assert world.governor.allowed is None
    assert world.said[2:] == [
        "GPU 0 is within its limits again: batches of 32 instead of 16",
        "GPU 0 is within its limits again: batches of 64 instead of 32",
    ]


def test_a_moment_of_warmth_begins_the_wait_anew() -> None:
    world = World(HOT)
    world.at(88)
    world.runs(1)
    world.at(70)
    world.runs(RECOVER_S - 1)
    world.at(84)  # below the limit, and not by enough
    assert world.runs(3 * RECOVER_S) == [32]
    world.at(70)
    assert world.runs(RECOVER_S - 1) == [32]


def test_memory_is_that_of_the_whole_gpu() -> None:
    world = World(Limits(memory=0.9))
    world.at(200, 91)  # no limit on temperature
    assert world.runs(1) == [32]
    assert "91% of its memory used, limit 90%" in world.said[0]


def test_a_last_small_batch_changes_nothing_for_the_next() -> None:
    world = World(HOT)
    world.runs(1)
    world.at(88)
    assert world.governor.batch(3) == 3
    assert world.governor.allowed == 32
    world.at(70)
    world.now += 1
    world.governor.batch(3)
    world.now += RECOVER_S
    assert world.governor.batch(3) == 3
    assert world.governor.allowed is None


def test_a_figure_that_is_not_told_is_said_once_and_holds_nothing_down() -> None:
    world = World(Limits(temperature_c=85.0, memory=0.5))
    world.reading = Reading()
    assert world.runs(60) == [64]
    assert sorted(world.said) == [
        "GPU 0 does not tell its memory: that limit is not kept",
        "GPU 0 does not tell its temperature: that limit is not kept",
    ]


@pytest.mark.parametrize(
    "wrong", [{"temperature_c": 200.0}, {"temperature_c": -1.0}, {"memory": 0.0}, {"memory": 90.0}]
)
def test_a_limit_that_no_gpu_can_keep_is_refused(wrong) -> None:
    with pytest.raises(UsageError, match="allowed"):
        Limits(**wrong)


@SOME_GPU
@pytest.mark.usefixtures("some_gpu")
def test_a_sampler_tells_a_governor() -> None:
    """Any GPU uses more than a millionth of its memory, the driver's own part at the least."""
    world = World(HOT)
    with Sampler(0, 0.01) as sampler:
        governor = Governor(Limits(memory=1e-6), sampler.latest, report=world)
        assert governor.batch(64) == 32
        assert Governor(Limits(memory=1.0, temperature_c=120), sampler.latest, report=world).batch(64) == 64
    assert len(world.said) == 1
