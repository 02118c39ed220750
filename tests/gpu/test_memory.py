"""Nothing is lost: not over many calls, not over many engines, and a process ends without a word."""

from __future__ import annotations

import pytest
from tools.proof.children import run_child
from tools.proof.claims import FLAT, HOST_FLAT

from face3d_trt.monitor.memory import GpuMemory

pytestmark = pytest.mark.gpu


def test_many_threads_get_their_own_rows_and_memory_stays_as_it_is(plans):
    child = run_child("soak:hammer", plan=str(plans / "small_fp16.plan"), calls=4000, device=0)
    found = child.expect()
    assert (found["calls"], found["wrong_rows"], found["errors"]) == (4000, 0, [])
    assert found["gpu_growth"] <= FLAT
    assert child.stderr == ""


def test_engines_that_are_opened_and_closed_leave_nothing_behind(plans):
    child = run_child("open_close:repeat", plan=str(plans / "small_fp16.plan"), cycles=60, bare=6, device=0)
    found = child.expect()
    assert found["gpu_growth"] <= FLAT
    assert found["bare"]["gpu_growth"] <= FLAT
    assert found["host_growth"] <= HOST_FLAT
    assert child.stderr == ""


def test_a_closed_engine_gives_its_memory_back(plans):
    from face3d_trt import Engine

    memory = GpuMemory()
    with Engine(plans / "small_fp16.plan") as keeper:  # the context stays, and with it what CUDA keeps for kernels
        keeper.warm_up((1, 4))
        before = memory.used()
        with Engine(plans / "small_fp16.plan") as engine:
            engine.warm_up((1, 4))
            assert memory.used() > before
        assert memory.used() - before <= FLAT
