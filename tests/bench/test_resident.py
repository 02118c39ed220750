"""A plan alone on the GPU: on doubles of CUDA and TensorRT, and on the real ones where a GPU is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.runtime.engine_parts import Parts
from tests.runtime.fakes import FakeDevice, FakeGraphs, FakePlan
from tests.runtime.network import SIDE, expected, pictures

from face3d_trt.bench.backend import Case, Skip
from face3d_trt.bench.resident import Resident
from face3d_trt.bench.trt import ThroughEngine
from face3d_trt.errors import MissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = pytest.param(True, marks=pytest.mark.gpu, id="real")


@pytest.fixture(params=[pytest.param(False, id="doubles"), REAL])
def parts(request: pytest.FixtureRequest) -> Iterator[Parts]:
    made = Parts(request.param)
    yield made
    made.close()


def case(batch: int, mode: Any = "engine") -> Case:
    return Case(batch, SIDE, SIDE, mode, "mesh", "float32")


@pytest.mark.parametrize("batch", [1, 7, 24])
def test_its_coefficients_are_the_networks_before_and_after_it_was_timed(parts: Parts, batch: int) -> None:
    gpu = parts.device()
    plan = parts.load(gpu)
    ready = Resident(gpu, plan, case(batch), parts.maker(gpu))
    images = pictures(batch, seed=3)
    want = expected(images)["coeffs"]
    np.testing.assert_allclose(ready.coeffs(images), want, atol=2e-3)
    assert ready.window_ms(9) > 0
    ready.call()
    ready.finish()
    np.testing.assert_allclose(ready.coeffs(images), want, atol=2e-3)
    ready.close()
    with gpu.current():
        plan.close()
    gpu.close()


def test_small_batches_are_one_graph_for_each_input_and_large_ones_are_none() -> None:
    gpu = FakeDevice(0)
    plan, maker = FakePlan(gpu), FakeGraphs(gpu)
    small = Resident(gpu, plan, case(4), maker)
    assert small.captured
    before = maker.launched
    small.window_ms(6)
    assert (maker.captured, maker.launched - before) == (4, 6)
    small.close()
    large = Resident(gpu, plan, case(24), maker)
    assert (large.captured, maker.captured, maker.alive) == (False, 4, 0)
    large.close()


def test_a_capture_that_is_refused_runs_plainly() -> None:
    gpu = FakeDevice(0)
    ready = Resident(gpu, FakePlan(gpu), case(2), FakeGraphs(gpu, refuse=True))
    assert not ready.captured
    np.testing.assert_allclose(ready.coeffs(pictures(2)), expected(pictures(2))["coeffs"], atol=1e-5)
    ready.close()


def test_nothing_is_left_on_the_gpu(parts: Parts) -> None:
    gpu = parts.device()
    plan = parts.load(gpu)
    with gpu.current():
        Resident(gpu, plan, case(24), parts.maker(gpu)).close()  # what stays for good comes with the first
        free = gpu.memory()[0]
    Resident(gpu, plan, case(24), parts.maker(gpu)).close()
    with gpu.current():
        assert gpu.memory()[0] == free
        plan.close()
    gpu.close()


def test_want_of_memory_is_said_and_leaves_nothing() -> None:
    gpu = FakeDevice(0, total=100_000)
    plan = FakePlan(gpu)
    with pytest.raises(MissingError, match="too little memory"):
        Resident(gpu, plan, case(24), None)
    assert gpu.memory() == (100_000, 100_000)
    assert not plan.contexts


@pytest.mark.parametrize(("batch", "why"), [(33, "batch 33 in one run"), (64, "batch 64 in one run")])
def test_a_batch_that_would_be_cut_is_skipped(batch: int, why: str) -> None:
    gpu = FakeDevice(0)
    with pytest.raises(Skip, match=why):
        Resident(gpu, FakePlan(gpu), case(batch), None)


def test_a_size_that_no_profile_holds_is_skipped() -> None:
    gpu = FakeDevice(0)
    with pytest.raises(Skip, match="no profile"):
        Resident(gpu, FakePlan(gpu), Case(1, 224, 224, "engine", "mesh", "float32"), None)


def test_through_the_engine_windows_overlap_and_leave_nothing_in_flight(parts: Parts) -> None:
    engine = parts.open()
    ready = ThroughEngine("unused", 0, case(3, "host"), engine)  # type: ignore[arg-type]
    assert ready.window_ms(20) > 0
    ready.call()
    np.testing.assert_allclose(ready.coeffs(pictures(3)), expected(pictures(3))["coeffs"], atol=2e-3)
    ready.close()
