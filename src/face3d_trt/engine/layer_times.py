"""The layers of a plan that was just built: listed by the inspector, and timed where pycuda is there."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.engine.layers import layer_records, with_times
from face3d_trt.errors import EngineError, Face3DError, MissingError, PlanError
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from face3d_trt.engine.flavour import Flavour
    from face3d_trt.engine.loaded import LoadedPlan, PlanContext
    from face3d_trt.engine.values import Built, Recipe
    from face3d_trt.records import LayerRecord, ProfileRecord
    from face3d_trt.runtime.cuda import Device
    from face3d_trt.runtime.resources import DeviceMemory, Stream

RUNS = 20  # the median of so many
_WARM_UPS = 5  # clocks rise, kernels are loaded
_WHERE = "the plan just built"
_SEED = 0


@dataclass(frozen=True)
class EngineLayers:
    """What the manifest keeps of a finished engine.

    Args:
        layers: In the engine's order; empty where the inspector's answer could not be read.
        timed_at: Input shape of the runs that were timed; None where none were.
    """

    layers: tuple[LayerRecord, ...] = ()
    timed_at: tuple[int, ...] | None = None


def layers_of(flavour: Flavour, built: Built, recipe: Recipe, report: Reporter = SILENT) -> EngineLayers:
    """List the layers of a plan just built, and time each on the first GPU, under the plan's largest profile.

    Without pycuda there are no times, and the layers are those of the first profile.

    Args:
        flavour: What built the plan.
        built: Nothing is listed where it has no inspection: no GPU could load the plan.
        recipe: What it was built with.
        report: Told once why there are no times, or no layers, where it is so.
    """
    if built.inspection is None:
        return EngineLayers()
    try:
        try:
            with _device() as device:
                return time_layers(flavour.load(built.plan, _WHERE, host_code=recipe.version_compat), device)
        except (EngineError, MissingError, PlanError) as error:
            report.warn(f"the engine's layers are listed without times: {_in_a_line(error)}")
        return EngineLayers(layer_records(built.inspection))
    except ValueError as error:
        report.warn(f"the engine inspector's answer cannot be read ({error}); the manifest lists no layers")
        return EngineLayers()


def time_layers(loaded: LoadedPlan, device: Device, runs: int = RUNS) -> EngineLayers:
    """Time the layers of a plan at the opt shape of the profile where that is largest; closes the plan.

    Each layer's time is the median of `runs` runs on random numbers: zeros would draw less power and run faster.

    Args:
        loaded: On `device`, whose context is current.
        device: The GPU.
        runs: How many runs are timed.

    Raises:
        EngineError: It does not run.
        MissingError: There is too little memory on the device; raised by the device's context as it is left.
        ValueError: The inspector's answer is not what it should be.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(loaded.close)
        index, profile = largest(loaded.profiles)
        stream = device.stream()
        stack.callback(stream.free)
        context = loaded.context(index, stream=stream.handle)
        _bind(loaded, context, profile, device, stream, stack)
        stack.callback(loaded.close)  # before the memory that it is bound to goes

        def run() -> None:
            context.enqueue(stream.handle)
            stream.synchronize()

        for _ in range(_WARM_UPS):
            run()
        measured = [context.time_layers(run) for _ in range(runs)]
        layers = layer_records(loaded.layer_information(context), index)
    names = dict.fromkeys(name for times in measured for name in times)
    medians = {name: statistics.median(times.get(name, 0.0) for times in measured) for name in names}
    return EngineLayers(with_times(layers, medians), profile.opt)


def largest(profiles: tuple[ProfileRecord, ...]) -> tuple[int, ProfileRecord]:
    """The profile with the largest opt shape, the first of equals, and its index."""
    return max(enumerate(profiles), key=lambda each: math.prod(each[1].opt))


def _bind(
    loaded: LoadedPlan,
    context: PlanContext,
    profile: ProfileRecord,
    device: Device,
    stream: Stream,
    stack: contextlib.ExitStack,
) -> None:
    """Give every tensor memory, and random numbers to the input."""
    import numpy as np

    def memory(nbytes: int) -> DeviceMemory:
        taken = device.alloc(nbytes)
        stack.callback(taken.free)
        return taken

    for tensor in loaded.inputs:
        context.set_input_shape(tensor.name, profile.opt)
        pictures = random_pictures(profile.opt, tensor.dtype)
        place = memory(pictures.nbytes)
        device.copy_in(place.address, pictures, stream)
        context.set_address(tensor.name, place.address)
        stream.synchronize()  # before `pictures` goes
    for tensor in loaded.outputs:
        nbytes = math.prod(context.shape(tensor.name)) * np.dtype(tensor.dtype).itemsize
        context.set_address(tensor.name, memory(nbytes).address)


def random_pictures(shape: tuple[int, ...], dtype: str) -> npt.NDArray[np.float32] | npt.NDArray[np.uint8]:
    """RGB noise in the range that the network takes: 0 to 1 in float32, 0 to 255 in uint8."""
    import numpy as np

    random = np.random.default_rng(_SEED)
    if dtype == "uint8":
        return random.integers(0, 256, shape, np.uint8)
    return random.random(shape, np.float32)


@contextlib.contextmanager
def _device() -> Iterator[Device]:
    """The first GPU with its context current.

    Raises:
        MissingError: There is no pycuda.
    """
    from face3d_trt.runtime.cuda import Device

    device = Device(0)
    try:
        with device.current():
            yield device
    finally:
        device.close()


def _in_a_line(error: Face3DError) -> str:
    """What was wrong and what to run."""
    problem = " ".join(error.problem.split())
    return f"{problem}; run: {error.run}" if error.run else problem
