"""A plan in TensorRT's hands, and its execution contexts: the same for TensorRT 8.6, 10, 11 and RTX.

Everything here needs a CUDA context that is current in the calling thread, `close` too. TensorRT refuses by a bool, by
None or by a RuntimeError, depending on the call; each becomes an EngineError with what it said in this thread.

An error's traceback keeps the variables of the functions it passed. So where something is raised, no variable holds an
object of TensorRT: it would outlive `close`, and die at some later time in some other thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from face3d_trt.engine.api import has
from face3d_trt.engine.callbacks import layer_times, listen, speaking_to
from face3d_trt.engine.messages import Messages
from face3d_trt.engine.network import dtype_name
from face3d_trt.errors import EngineError, PlanError
from face3d_trt.records import ProfileRecord, TensorRecord

if TYPE_CHECKING:
    from face3d_trt.engine import api


def deserialize(
    trt: api.Module, title: str, plan: bytes, where: str, *, host_code: bool
) -> tuple[api.Runtime, api.Engine]:
    """TensorRT's own objects of a plan: the runtime has to outlive the engine.

    Raises:
        PlanError: TensorRT refuses the plan.
    """
    messages = Messages()
    with speaking_to(trt, messages) as logger:
        runtime = trt.Runtime(logger)
        if host_code:
            runtime.engine_host_code_allowed = True
        engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        del runtime
        raise PlanError(
            f"{title} cannot read {where}:\n    " + "\n    ".join(messages.errors() or ["it gave no reason"]),
            allowed="a whole plan that this TensorRT built for this kind of GPU",
            run="face3d-trt build",
        )
    return runtime, engine


def load_plan(trt: api.Module, title: str, plan: bytes, where: str, *, host_code: bool = False) -> LoadedPlan:
    """Deserialise a plan.

    Args:
        trt: The module.
        title: What messages call this TensorRT.
        plan: Raw.
        where: What messages call the plan.
        host_code: Whether TensorRT may run the code inside the plan: a version-compatible plan carries its own runtime.

    Raises:
        PlanError: TensorRT refuses the plan.
    """
    runtime, engine = deserialize(trt, title, plan, where, host_code=host_code)
    return LoadedPlan(trt, title, where, runtime, engine)


class LoadedPlan:
    """An engine of TensorRT with what it says about itself; made by `Flavour.load`.

    Attributes:
        inputs: -1 for a dynamic dimension; one that every profile fixes is -1 or its size, as this TensorRT has it.
        outputs: Likewise.
        profiles: Shapes of the first input.
    """

    def __init__(self, trt: api.Module, title: str, where: str, runtime: api.Runtime, engine: api.Engine) -> None:
        self._trt, self._title, self._where = trt, title, where
        self._runtime: api.Runtime | None = runtime  # has to outlive the engine
        self._engine: api.Engine | None = engine
        self._contexts: set[PlanContext] = set()
        self._lock = threading.Lock()
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        modes = {name: engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
        self.inputs = tuple(_tensor(engine, name) for name in names if modes[name])
        self.outputs = tuple(_tensor(engine, name) for name in names if not modes[name])
        count = engine.num_optimization_profiles
        self._ranges = tuple(
            {tensor.name: _profile(engine, tensor.name, index) for tensor in self.inputs} for index in range(count)
        )
        self.profiles = tuple(ranges[self.inputs[0].name] for ranges in self._ranges)

    def scratch_bytes(self) -> int:
        """Device memory that one context needs while it runs, the largest over the profiles."""
        engine = self._open()
        sized = has(self._trt, "ICudaEngine.device_memory_size_v2")
        return engine.device_memory_size_v2 if sized else engine.device_memory_size

    def context(self, profile: int, *, stream: int, scratch: int | None = None) -> PlanContext:
        """Make an execution context with `profile` selected.

        Args:
            profile: Index of the optimization profile.
            stream: Handle of the CUDA stream on which TensorRT may copy while it selects the profile; what runs on
                another stream has to wait for it.
            scratch: Address of `scratch_bytes()` bytes on the device, aligned to 256, that contexts which never run at
                the same time may share. None: TensorRT allocates for this context alone.

        Raises:
            EngineError: There is no such profile, or TensorRT refuses: most often for want of device memory.
        """
        self._open()
        if not 0 <= profile < len(self.profiles):
            raise EngineError(
                f"{self._where} has no optimization profile {profile}", allowed=f"0 to {len(self.profiles) - 1}"
            )
        messages = Messages()
        with self._lock:  # 8.6 keeps book of which context has which profile
            listen(messages)
            raw = self._open().create_execution_context() if scratch is None else self._without_memory(scratch)
            if raw is None:
                raise self.refusal("made no execution context for", messages)
            if not _selected(raw, profile, stream):
                del raw
                raise self.refusal(f"did not select profile {profile} of", messages)
            made = PlanContext(self._trt, raw, profile, self)
            self._contexts.add(made)
        return made

    def layer_information(self, context: PlanContext | None = None) -> str:
        """The engine inspector's JSON.

        Args:
            context: One with its input shapes set: without it TensorRT 8.6 knows no formats of dynamic shapes. What
                the first layer reads, 8.6 knows once the context has run.
        """
        inspector = self._open().create_engine_inspector()
        if context is not None:
            inspector.execution_context = context.raw
        return inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)

    def close(self) -> None:
        """Destroy the contexts, then the engine; nothing happens the second time."""
        for context in tuple(self._contexts):
            context.close()
        self._engine = None
        self._runtime = None

    def refusal(self, what: str, messages: Messages) -> EngineError:
        """The error for what TensorRT did not do, in its own words."""
        reasons = messages.errors() or ["it gave no reason"]
        return EngineError(f"{self._title} {what} {self._where}:\n    " + "\n    ".join(reasons))

    def check_shape(self, name: str, shape: tuple[int, ...], profile: int) -> None:
        """Hold an input's shape against a profile.

        Raises:
            EngineError: There is no such input, or the shape is outside.
        """
        ranges = self._ranges[profile]
        if name not in ranges:
            raise EngineError(f"{self._where} has no input {name}", allowed=", ".join(ranges))
        low, high = ranges[name].min, ranges[name].max
        if len(shape) != len(low) or not all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True)):
            raise EngineError(
                f"the shape {shape} of {name} is outside of optimization profile {profile} of {self._where}",
                allowed=f"{low} to {high}",
            )

    def forget(self, context: PlanContext) -> None:
        """Hear from a context that it is closed."""
        self._contexts.discard(context)

    def _open(self) -> api.Engine:
        if self._engine is None:
            raise EngineError(f"{self._where} is closed", run="load the plan again")
        return self._engine

    def _without_memory(self, scratch: int) -> api.Context | None:
        """A context that works in the caller's memory."""
        engine = self._open()
        if has(self._trt, "ExecutionContextAllocationStrategy"):
            raw = engine.create_execution_context(self._trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        else:
            raw = engine.create_execution_context_without_device_memory()
        if raw is None:
            return None
        if has(self._trt, "IExecutionContext.set_device_memory"):
            raw.set_device_memory(scratch, self.scratch_bytes())
        else:
            raw.device_memory = scratch
        return raw


class PlanContext:
    """An execution context with one profile; made by `LoadedPlan.context`, used by one thread at a time."""

    def __init__(self, trt: api.Module, raw: api.Context, profile: int, plan: LoadedPlan) -> None:
        self._trt = trt
        self._raw: api.Context | None = raw
        self.profile = profile
        self._plan = plan
        self._messages = Messages()

    @property
    def raw(self) -> api.Context:
        """TensorRT's own.

        Raises:
            EngineError: It is closed.
        """
        if self._raw is None:
            raise EngineError("this execution context is closed")
        return self._raw

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Say which shape the next run takes.

        TensorRT never sees a shape outside of the profile: not every version refuses it.

        Raises:
            EngineError: There is no such input, the shape is outside of the profile, or TensorRT refuses it.
        """
        self._plan.check_shape(name, shape, self.profile)
        listen(self._messages)
        if not self.raw.set_input_shape(name, shape):
            raise self._refusal(f"refused the shape {shape} of {name} in")

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an input or output for the input shapes that are set.

        Raises:
            EngineError: They are not set, so the shape is not known.
        """
        listen(self._messages)
        found = tuple(map(int, self.raw.get_tensor_shape(name)))
        if any(size < 0 for size in found):
            raise self._refusal(f"does not know the shape of {name} ({found}) before the inputs' in")
        return found

    def set_address(self, name: str, address: int) -> None:
        """Say where on the device an input or output lies.

        Raises:
            EngineError: There is no such tensor.
        """
        listen(self._messages)
        if not self.raw.set_tensor_address(name, address):
            raise self._refusal(f"refused the address of {name} in")

    def enqueue(self, stream: int) -> None:
        """Put one run on a CUDA stream; it is not finished when this returns.

        Raises:
            EngineError: TensorRT refuses: an address or a shape is missing, or CUDA failed.
        """
        listen(self._messages)
        if not self.raw.execute_async_v3(stream):
            raise self._refusal("could not run")

    def time_layers(self, run: Callable[[], None]) -> dict[str, float]:
        """Time each layer of the runs that `run` enqueues; slower than without, as TensorRT waits for each run.

        Args:
            run: Enqueues once or several times.

        Returns:
            Layer's name to milliseconds, the mean of the runs, in the order of the layers.
        """
        times, profiler = layer_times(self._trt)
        self.raw.profiler = profiler
        try:
            run()
        finally:
            if self._raw is not None:
                self._raw.profiler = None
        return {name: sum(each) / len(each) for name, each in times.items()}

    def close(self) -> None:
        """Destroy it; nothing happens the second time."""
        self._raw = None
        self._plan.forget(self)

    def _refusal(self, what: str) -> EngineError:
        return self._plan.refusal(what, self._messages)


def _selected(raw: api.Context, profile: int, stream: int) -> bool:
    try:
        return raw.set_optimization_profile_async(profile, stream)
    except RuntimeError:  # how TensorRT's Python says no here
        return False


def _tensor(engine: api.Engine, name: str) -> TensorRecord:
    dtype = dtype_name(engine.get_tensor_dtype(name))
    return TensorRecord(name=name, dtype=dtype, shape=_sizes(engine.get_tensor_shape(name)))


def _profile(engine: api.Engine, name: str, index: int) -> ProfileRecord:
    low, usual, high = (_sizes(shape) for shape in engine.get_tensor_profile_shape(name, index))
    return ProfileRecord(min=low, opt=usual, max=high)


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)
