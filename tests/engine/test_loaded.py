"""Plans in TensorRT's hands: on doubles of two generations, and on the real one where there is a GPU."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine import tensorrt_double as double

from face3d_trt.engine.loaded import LoadedPlan, load_plan
from face3d_trt.errors import EngineError, PlanError

if TYPE_CHECKING:
    from face3d_trt.runtime.cuda import Device

TINY = Path(__file__).parent / "data" / "tiny.fp32.onnx"  # tests.tiny's graph at opset 17, which every TensorRT takes


@dataclass
class Loaded:
    """A plan with two profiles, batch 1 to 4 and 2 to 16, and where it is."""

    plan: LoadedPlan
    alloc: Callable[[int], int]
    stream: int
    wait: Callable[[], None]


@pytest.fixture(
    params=["8.6", "11", pytest.param("here", marks=[pytest.mark.gpu, pytest.mark.timeout(60, method="thread")])]
)
def loaded(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    if request.param == "here":
        yield from _real(request.getfixturevalue("device"), request.getfixturevalue("built"))
        return
    plan = load_plan(double.tensorrt(request.param), "TensorRT", double.PLAN, "a.plan")
    yield Loaded(plan, lambda nbytes: 0x1000, 7, lambda: None)
    plan.close()


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """GPU 0; its context lives as long as there are tests here."""
    pytest.importorskip("tensorrt")
    pytest.importorskip("pycuda")
    from face3d_trt.runtime.cuda import Device

    device = Device(0)
    yield device
    device.close()


@pytest.fixture(scope="module")
def built(device: Device) -> bytes:
    """A plan of this machine's TensorRT with the profiles of the doubles."""
    from face3d_trt.engine.flavour import find_flavour
    from face3d_trt.engine.profile import Profile
    from face3d_trt.engine.values import Recipe

    flavour = find_flavour()
    recipe = Recipe("fp32", tuple(Profile(*shapes) for shapes in double.PROFILES))
    with device.current():
        return flavour.build(flavour.parse(TINY.read_bytes(), TINY.name), recipe).plan


def _real(device: Device, built: bytes) -> Iterator[Loaded]:
    """Everything is freed here, in order and with its context current, whatever a failed test still holds."""
    from face3d_trt.engine.flavour import find_flavour

    with device.current(), contextlib.ExitStack() as stack:
        stream = device.stream()
        stack.callback(stream.free)

        def alloc(nbytes: int) -> int:
            memory = device.alloc(nbytes)
            before_plan.callback(memory.free)
            return memory.address

        before_plan = stack.enter_context(contextlib.ExitStack())
        plan = find_flavour().load(built, "a.plan")
        stack.callback(plan.close)  # before the memory that it is bound to goes
        stack.callback(stream.synchronize)
        yield Loaded(plan, alloc, stream.handle, stream.synchronize)


def _bind(loaded: Loaded, context: Any, batch: int) -> None:
    context.set_input_shape("input", (batch, 3, 224, 224))
    context.set_address("input", loaded.alloc(batch * 3 * 224 * 224 * 4))
    context.set_address("coeffs", loaded.alloc(batch * 257 * 4))


def test_a_plan_says_what_it_takes_and_gives(loaded: Loaded) -> None:
    plan = loaded.plan
    (taken,) = plan.inputs
    assert (taken.name, taken.dtype, taken.shape[:2]) == ("input", "float32", (-1, 3))
    assert taken.shape[2:] in ((-1, -1), (224, 224))  # every profile has this size
    assert [(each.name, each.dtype, each.shape) for each in plan.outputs] == [("coeffs", "float32", (-1, 257))]
    assert [(each.min, each.opt, each.max) for each in plan.profiles] == list(double.PROFILES)
    assert plan.scratch_bytes() >= 0


def test_the_shape_that_is_set_is_the_one_that_runs(loaded: Loaded) -> None:
    context = loaded.plan.context(1, stream=loaded.stream)
    for batch in (2, 5, 16):
        _bind(loaded, context, batch)
        assert context.shape("coeffs") == (batch, 257)
        context.enqueue(loaded.stream)
        loaded.wait()


def test_contexts_share_profiles_and_memory(loaded: Loaded) -> None:
    scratch = loaded.alloc(max(loaded.plan.scratch_bytes(), 1))
    contexts = [loaded.plan.context(index, stream=loaded.stream, scratch=scratch) for index in (0, 0, 1)]
    for context in contexts:
        _bind(loaded, context, 3)
        context.enqueue(loaded.stream)
    loaded.wait()


@pytest.mark.parametrize(
    ("profile", "shape"),
    [
        (0, (5, 3, 224, 224)),
        (0, (0, 3, 224, 224)),
        (0, (-1, 3, 224, 224)),
        (0, (1, 3, 256, 224)),
        (0, (1, 224, 224, 3)),
        (0, (3, 224, 224)),
        (1, (1, 3, 224, 224)),
        (1, (17, 3, 224, 224)),
    ],
)
def test_a_shape_outside_of_the_profile_never_reaches_tensorrt(
    loaded: Loaded, profile: int, shape: tuple[int, ...]
) -> None:
    context = loaded.plan.context(profile, stream=loaded.stream)
    _bind(loaded, context, 3)
    with pytest.raises(EngineError) as caught:
        context.set_input_shape("input", shape)
    assert caught.value.problem == f"the shape {shape} of input is outside of optimization profile {profile} of a.plan"
    low, _, high = double.PROFILES[profile]
    assert caught.value.allowed == f"{low} to {high}"
    assert context.shape("input") == (3, 3, 224, 224)  # as it was
    context.enqueue(loaded.stream)
    loaded.wait()


@pytest.mark.parametrize("generation", ["8.6", "11"])
def test_what_tensorrt_refuses_is_said_in_its_words(generation: str) -> None:
    plan = load_plan(double.tensorrt(generation), "TensorRT", double.PLAN, "a.plan")
    engine: Any = plan._engine
    engine.stubborn = True
    with pytest.raises(
        EngineError, match=r"TensorRT refused the shape \(1, 3, 224, 224\) of input in a\.plan"
    ) as caught:
        plan.context(0, stream=1).set_input_shape("input", (1, 3, 224, 224))
    assert "Static dimension mismatch" in caught.value.problem


@pytest.mark.parametrize("generation", ["8.6", "11"])
def test_an_error_that_is_kept_keeps_nothing_of_tensorrt_alive(generation: str) -> None:
    """Its traceback holds the variables of the calls: an engine among them would die anywhere, at any time."""
    plan = load_plan(double.tensorrt(generation), "TensorRT", double.PLAN, "a.plan")
    engine: Any = plan._engine
    context = plan.context(0, stream=1)
    engine.sharing = False  # the profile is taken
    errors = []
    for use in (
        lambda: context.set_input_shape("input", (9, 3, 224, 224)),
        lambda: context.shape("coeffs"),
        lambda: context.set_address("vertex", 1),
        lambda: context.enqueue(1),
        lambda: context.time_layers(lambda: context.enqueue(1)),
        lambda: plan.context(2, stream=1),
        lambda: plan.context(0, stream=1),
        lambda: plan.context(0, stream=1, scratch=0x2000),
    ):
        with pytest.raises(EngineError) as caught:
            use()
        errors.append(caught.value)
    alive = [weakref.ref(each) for each in (engine, *engine.contexts, plan._runtime)]
    del engine
    plan.close()
    gc.collect()  # the doubles know each other
    assert len(errors) == 8
    assert [each() for each in alive if each() is not None] == []


def test_what_is_missing_is_said_before_it_crashes(loaded: Loaded) -> None:
    context = loaded.plan.context(0, stream=loaded.stream)
    with pytest.raises(EngineError, match="does not know the shape of coeffs"):
        context.shape("coeffs")
    context.set_input_shape("input", (1, 3, 224, 224))
    with pytest.raises(EngineError) as caught:
        context.enqueue(loaded.stream)
    assert "it gave no reason" not in caught.value.problem
    with pytest.raises(EngineError):
        context.set_address("vertex", loaded.alloc(4))
    with pytest.raises(EngineError, match=r"a\.plan has no input coeffs"):
        context.set_input_shape("coeffs", (1, 257))
    for index in (-1, 2):
        with pytest.raises(EngineError) as caught:
            loaded.plan.context(index, stream=loaded.stream)
        assert caught.value.allowed == "0 to 1"


def test_layers_are_timed_run_by_run(loaded: Loaded) -> None:
    context = loaded.plan.context(0, stream=loaded.stream)
    _bind(loaded, context, 2)

    def run() -> None:
        for _ in range(3):
            context.enqueue(loaded.stream)
            loaded.wait()

    times = context.time_layers(run)
    assert len(times) >= 1
    assert all(0 <= time < 1000 for time in times.values())
    if isinstance(context.raw, double.Context):  # three runs of once, twice and three times its figure
        assert times == {name: 2 * ms for name, ms in double.LAYERS.items()}
    assert context.time_layers(lambda: None) == {}


def test_the_inspector_sees_the_shapes_of_a_context_that_has_run(loaded: Loaded) -> None:
    context = loaded.plan.context(0, stream=loaded.stream)
    _bind(loaded, context, 2)
    context.enqueue(loaded.stream)  # before that, 8.6 leaves the first layer's input open
    loaded.wait()
    assert "N/A due to dynamic shapes" not in loaded.plan.layer_information(context)
    assert loaded.plan.layer_information()


def test_closing_twice_is_closing_once_and_using_it_then_is_an_error(loaded: Loaded) -> None:
    first, second = (loaded.plan.context(0, stream=loaded.stream) for _ in range(2))
    first.close()
    first.close()
    loaded.plan.close()
    loaded.plan.close()
    for use in (lambda: first.enqueue(loaded.stream), lambda: second.shape("coeffs"), loaded.plan.layer_information):
        with pytest.raises(EngineError, match="closed"):
            use()
    with pytest.raises(EngineError, match=r"a\.plan is closed"):
        loaded.plan.context(0, stream=loaded.stream)


def test_a_truncated_plan_is_refused() -> None:
    for size in range(len(double.PLAN)):
        with pytest.raises(PlanError) as caught:
            load_plan(double.tensorrt("8.6"), "TensorRT 8.6.0", double.PLAN[:size], "b.plan")
        assert "TensorRT 8.6.0 cannot read b.plan" in caught.value.problem
        assert "Magic tag" in caught.value.problem


@pytest.mark.parametrize("allowed", [False, True])
def test_code_in_a_plan_runs_only_where_its_manifest_says_so(allowed: bool) -> None:
    trt = double.tensorrt("11")
    runtimes = []
    make = trt.Runtime
    trt.Runtime = lambda logger: runtimes.append(make(logger)) or runtimes[-1]
    load_plan(trt, "TensorRT", double.PLAN, "a.plan", host_code=allowed)
    assert [runtime.engine_host_code_allowed for runtime in runtimes] == [allowed]


@pytest.mark.parametrize(("generation", "own"), [("8.6", None), ("11", (-1, double.SCRATCH))])
def test_memory_is_handed_over_as_each_generation_wants_it(generation: str, own: object) -> None:
    plan = load_plan(double.tensorrt(generation), "TensorRT", double.PLAN, "a.plan")
    assert plan.context(0, stream=1, scratch=0x2000).raw.memory == (0x2000, plan.scratch_bytes())  # type: ignore[attr-defined]
    assert plan.context(0, stream=1).raw.memory == own  # type: ignore[attr-defined]


def test_a_profile_in_use_and_a_full_device_are_errors() -> None:
    """8.6 without profile sharing raises from Python; without memory it gives no context."""
    plan = load_plan(double.tensorrt("8.6"), "TensorRT", double.PLAN, "a.plan")
    engine: Any = plan._engine
    engine.sharing = False
    plan.context(0, stream=1)
    with pytest.raises(EngineError, match="Profile is in use"):
        plan.context(0, stream=1)
    engine.full = True
    with pytest.raises(EngineError, match="Out of memory"):
        plan.context(1, stream=1)
