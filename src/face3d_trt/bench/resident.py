"""A TensorRT plan alone: inputs and outputs on the GPU, one stream, nothing of the runtime's copies and threads."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.bench.backend import Skip
from face3d_trt.bench.inputs import random_inputs
from face3d_trt.errors import EngineError, InputError
from face3d_trt.names import COEFFS
from face3d_trt.runtime.lane import SMALL_ROWS
from face3d_trt.runtime.pieces import limits_of, plan_pieces

if TYPE_CHECKING:
    from face3d_trt.bench.backend import Case
    from face3d_trt.engine.loaded import LoadedPlan
    from face3d_trt.records import ProfileRecord
    from face3d_trt.runtime.cuda import Device
    from face3d_trt.runtime.graphs import GraphMaker
    from face3d_trt.runtime.interface import HostArray
    from face3d_trt.runtime.resources import DeviceMemory

_PLAIN_RUNS = 2  # before a capture: TensorRT finishes its set-up for a shape in the first
_PROFILED_RUNS = 20


def profile_for(profiles: tuple[ProfileRecord, ...], case: Case) -> int:
    """The profile that the runtime would take for a case.

    Raises:
        Skip: None holds it in one run.
    """
    try:
        pieces = plan_pieces(case.batch, case.height, case.width, limits_of(profiles, case.input))
    except InputError as error:
        raise Skip(f"no profile of the plan holds it: {error.problem}") from None
    if len(pieces) != 1:
        raise Skip(f"no profile of the plan holds batch {case.batch} in one run")
    return pieces[0].profile


class Resident:
    """A plan at one case; a Ready of mode "engine". The GPU's context is current in this thread until `close`.

    Small batches are replayed as CUDA graphs where cuda-python is there, as the runtime does: one graph for each input.

    Args:
        gpu: The GPU; it stays open.
        plan: Loaded on it; it stays loaded.
        case: What is run.
        graphs: What captures; None: no graphs.

    Attributes:
        captured: Whether calls are CUDA graphs.
    """

    def __init__(self, gpu: Device, plan: LoadedPlan, case: Case, graphs: GraphMaker | None) -> None:
        profile = profile_for(plan.profiles, case)
        self._gpu, self._plan, self._case = gpu, plan, case
        self.captured = False
        with ExitStack() as stack:
            stack.enter_context(gpu.current())
            self._stream = gpu.stream()
            stack.callback(self._stream.free)
            self._begin, self._end = gpu.event(timed=True), gpu.event(timed=True)
            stack.callback(self._begin.free)
            stack.callback(self._end.free)
            scratch = self._keep(stack, plan.scratch_bytes())  # TensorRT would take as much by itself
            self._context = plan.context(profile, stream=self._stream.handle, scratch=scratch.address)
            stack.callback(self._context.close)
            self._name = plan.inputs[0].name
            self._context.set_input_shape(self._name, case.shape)
            self._inputs = [self._upload(stack, images) for images in random_inputs(case)]
            self._outputs = {each.name: self._output(stack, each.name, each.dtype) for each in plan.outputs}
            self._bind(self._inputs[0])
            for _ in range(_PLAIN_RUNS):
                self._context.enqueue(self._stream.handle)
            self._stream.synchronize()
            self._runs = itertools.cycle(self._prepare(stack, graphs if case.batch <= SMALL_ROWS else None))
            self._next = self._runs.__next__
            self.call()
            self.finish()
            self._stack = stack.pop_all()

    def call(self) -> None:
        """See Ready."""
        self._next()()

    def finish(self) -> None:
        """See Ready."""
        self._stream.synchronize()

    def window_ms(self, loops: int) -> float:
        """See Ready; by CUDA events."""
        following = self._next
        self._begin.record(self._stream)
        for _ in range(loops):
            following()()
        self._end.record(self._stream)
        self._end.synchronize()
        milliseconds: float = self._end.ms_since(self._begin)
        return milliseconds / loops

    def allocator_peak(self) -> int | None:
        """See Ready."""
        return None

    def coeffs(self, images: HostArray) -> HostArray:
        """See Ready."""
        found = np.empty(self._context.shape(COEFFS), np.float32)
        memory = self._gpu.alloc(images.nbytes)
        try:
            self._gpu.copy_in(memory.address, np.ascontiguousarray(images), self._stream)
            self._bind(memory)
            self._context.enqueue(self._stream.handle)
            self._gpu.copy_out(found, self._outputs[COEFFS].address, self._stream)
            self._stream.synchronize()
        finally:
            memory.free()
            self._bind(self._inputs[0])
        return found

    def layer_times(self) -> tuple[str, dict[str, float]]:
        """The inspector's JSON, and milliseconds by layer: the median of some runs, each timed by TensorRT."""

        def run() -> None:
            self._context.enqueue(self._stream.handle)
            self._stream.synchronize()

        run()
        measured = [self._context.time_layers(run) for _ in range(_PROFILED_RUNS)]
        names = dict.fromkeys(name for times in measured for name in times)
        medians = {name: statistics.median(times.get(name, 0.0) for times in measured) for name in names}
        return self._plan.layer_information(self._context), medians

    def close(self) -> None:
        """See Ready."""
        with self._stack:
            self._stream.synchronize()

    def _bind(self, images: DeviceMemory) -> None:
        self._context.set_address(self._name, images.address)

    def _prepare(self, stack: ExitStack, graphs: GraphMaker | None) -> list[Callable[[], None]]:
        """One call for each input: a graph's launch, or an address and a run."""
        if graphs is not None:
            try:
                return [self._capture(stack, graphs, images) for images in self._inputs]
            except EngineError:
                self.captured = False
        return [functools.partial(self._plainly, images) for images in self._inputs]

    def _capture(self, stack: ExitStack, graphs: GraphMaker, images: DeviceMemory) -> Callable[[], None]:
        self._bind(images)
        graph = graphs.capture(self._stream.handle, lambda: self._context.enqueue(self._stream.handle))
        stack.callback(graph.close)
        self.captured = True
        return graph.launch

    def _plainly(self, images: DeviceMemory) -> None:
        self._context.set_address(self._name, images.address)
        self._context.enqueue(self._stream.handle)

    def _keep(self, stack: ExitStack, nbytes: int) -> DeviceMemory:
        memory = self._gpu.alloc(nbytes)
        stack.callback(memory.free)
        return memory

    def _upload(self, stack: ExitStack, images: HostArray) -> DeviceMemory:
        memory = self._keep(stack, images.nbytes)
        self._gpu.copy_in(memory.address, images, self._stream)
        self._stream.synchronize()  # before `images` goes
        return memory

    def _output(self, stack: ExitStack, name: str, dtype: str) -> DeviceMemory:
        memory = self._keep(stack, math.prod(self._context.shape(name)) * np.dtype(dtype).itemsize)
        self._context.set_address(name, memory.address)
        return memory
