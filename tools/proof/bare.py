"""The engine alone, which the runtime is held against: inputs that lie on the GPU, one stream, nothing but TensorRT."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from face3d_trt.bench.timing import Steady, steady

from .pictures import SETS, SIDE, random_input

if TYPE_CHECKING:
    from face3d_trt.engine.loaded import LoadedPlan

WINDOW_S = 0.25  # long enough that the two events cost nothing


@functools.lru_cache
def _primary(index: int) -> Any:
    """Kept for good: pycuda 2026.1 leaves a primary context current where it releases one that is not."""
    import pycuda.driver as cuda

    cuda.init()
    return cuda.Device(index).retain_primary_context()


@contextlib.contextmanager
def primary_context(index: int = 0) -> Iterator[None]:
    """The device's primary context, current in this thread."""
    import pycuda.driver as cuda

    _primary(index).push()
    try:
        yield
    finally:
        cuda.Context.synchronize()
        cuda.Context.pop()


def load(plan: Path) -> LoadedPlan:
    """A plan in TensorRT's hands, in the current context."""
    from face3d_trt.engine.flavour import find_flavour

    return find_flavour().load(plan.read_bytes(), str(plan))


def profile_for(plan: LoadedPlan, batch: int) -> int:
    """The tightest profile that holds a batch.

    Raises:
        ValueError: None does.
    """
    fitting = [index for index, each in enumerate(plan.profiles) if each.min[0] <= batch <= each.max[0]]
    if not fitting:
        raise ValueError(f"no profile holds batch {batch}")
    return min(fitting, key=lambda index: plan.profiles[index].max[0])


class BareLoop:
    """One plan at one batch size. Everything needs the same CUDA context, current in the calling thread.

    Args:
        plan: Loaded.
        batch: Rows.
        sets: Inputs in rotation.
    """

    def __init__(self, plan: LoadedPlan, batch: int, sets: int = SETS) -> None:
        import pycuda.driver as cuda

        self._stream = cuda.Stream()
        self.context = plan.context(profile_for(plan, batch), stream=self._stream.handle)
        self.name = plan.inputs[0].name
        self.batch = batch
        layout = plan.inputs[0].dtype
        shape = (batch, SIDE, SIDE, 3) if layout == "uint8" else (batch, 3, SIDE, SIDE)
        self.context.set_input_shape(self.name, shape)
        self._inputs = [cuda.to_device(random_input(batch, layout, seed)) for seed in range(sets)]
        self._outputs = []
        for output in plan.outputs:
            size = int(np.prod(self.context.shape(output.name))) * np.dtype(output.dtype).itemsize
            self._outputs.append(cuda.mem_alloc(size))
            self.context.set_address(output.name, int(self._outputs[-1]))
        self._turn = 0
        self._loops = 1

    def enqueue(self) -> None:
        """One run, with the next of the inputs."""
        self._turn = (self._turn + 1) % len(self._inputs)
        self.context.set_address(self.name, int(self._inputs[self._turn]))
        self.context.enqueue(self._stream.handle)

    def window(self) -> float:
        """Milliseconds of a run, by CUDA events around WINDOW_S of runs."""
        import pycuda.driver as cuda

        start, end = cuda.Event(), cuda.Event()
        start.record(self._stream)
        for _ in range(self._loops):
            self.enqueue()
        end.record(self._stream)
        end.synchronize()
        return float(start.time_till(end)) / self._loops

    def warm_up(self, seconds: float = 1.0) -> None:
        """Run until clocks and caches are as in service, and find out how many runs make a window."""
        begun, took = time.monotonic(), 1.0
        self.window()
        while time.monotonic() - begun < seconds:
            took = self.window()
            self._loops = max(5, round(WINDOW_S * 1000 / took))

    def steady(self) -> Steady:
        """Milliseconds of a run."""
        self.warm_up()
        return steady(self.window)

    def single(self, calls: int) -> list[int]:
        """Nanoseconds of single runs, by CUDA events, each waited for before the next begins."""
        import pycuda.driver as cuda

        found = []
        start, end = cuda.Event(), cuda.Event()
        for _ in range(calls):
            start.record(self._stream)
            self.enqueue()
            end.record(self._stream)
            end.synchronize()
            found.append(round(start.time_till(end) * 1e6))
        return found

    def layer_times(self, runs: int) -> dict[str, float]:
        """Milliseconds of each layer, the mean of `runs`."""
        self.warm_up()

        def work() -> None:
            for _ in range(runs):
                self.enqueue()
            self._stream.synchronize()

        return self.context.time_layers(work)

    def close(self) -> None:
        """Free the memory; the plan stays."""
        self._stream.synchronize()
        self.context.close()
        for memory in (*self._inputs, *self._outputs):
            memory.free()


def rate(milliseconds: float, batch: int) -> float:
    """Rows a second."""
    return batch / milliseconds * 1000


def measured(loop: BareLoop, calls: int) -> dict[str, Any]:
    """`{"ms", "rate", "spread", "stable", "windows", "single"}`; `single`: latencies, of small batches only."""
    from face3d_trt.bench.timing import latencies

    figures = loop.steady()
    single = latencies(loop.single(calls)) if loop.batch <= 4 else None
    return {
        "ms": figures.value,
        "rate": rate(figures.value, loop.batch),
        "spread": figures.spread,
        "stable": figures.stable,
        "windows": figures.windows,
        "single": single,
    }
