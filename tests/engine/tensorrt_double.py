"""TensorRT's runtime as its documentation has it, in two generations, for machines that have none.

Each generation has the members that it has in truth and no others: what was built for the other one raises.
tests/engine/test_loaded.py runs the same tests on the real one where there is a GPU.
"""

from __future__ import annotations

import enum
import struct
from types import SimpleNamespace
from typing import Any

MAGIC = b"double"
PROFILES = (
    ((1, 3, 224, 224), (1, 3, 224, 224), (4, 3, 224, 224)),
    ((2, 3, 224, 224), (8, 3, 224, 224), (16, 3, 224, 224)),
)
SCRATCH = 4096
PLAN = MAGIC + struct.pack("<I", SCRATCH)
LAYERS = {"conv": 0.5, "head": 0.25}  # ms


class Mode(enum.Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class Context:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.profiler: Any = None
        self.memory: tuple[int, int] | None = None
        self.profile: int | None = None
        self.shape: tuple[int, ...] | None = None
        self.addresses: dict[str, int] = {}
        self.runs: list[int] = []

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        taken = [other.profile for other in self.engine.contexts if other is not self]
        if not self.engine.sharing and profile_index in taken:
            self.engine.say("Profile is in use by another context")
            raise RuntimeError("Error in set optimization profile async.")
        self.profile = profile_index
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        """Takes what it is given, as not every TensorRT refuses what is outside of the profile."""
        if self.profile is None or self.engine.stubborn:
            self.engine.say(f"Static dimension mismatch: {shape}")
            return False
        self.shape = shape
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        batch = self.shape[0] if self.shape else -1
        return (batch, 257) if name == "coeffs" else (self.shape or (-1, 3, -1, -1))

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if name not in ("input", "coeffs"):
            self.engine.say(f"Given invalid tensor name: {name}")
            return False
        self.addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        if missing := {"input", "coeffs"} - set(self.addresses):
            self.engine.say(f"Address is not set for {', '.join(sorted(missing))}")
            return False
        self.runs.append(stream_handle)
        if self.profiler is not None:
            for name, ms in LAYERS.items():
                self.profiler.report_layer_time(name, ms * len(self.runs))
        return True


class OldContext(Context):
    """8.6: memory by a property."""

    @property
    def device_memory(self) -> int:
        raise AttributeError("unreadable attribute")

    @device_memory.setter
    def device_memory(self, memory: int) -> None:
        self.memory = (memory, SCRATCH)


class NewContext(Context):
    """From 10.1 on: memory and its size."""

    def set_device_memory(self, memory: int, size: int) -> None:
        self.memory = (memory, size)


class Engine:
    def __init__(self, logger: Any, trt: Any) -> None:
        self.logger, self.trt = logger, trt
        self.contexts: list[Context] = []
        self.sharing = True
        self.full = False  # no memory for another context
        self.stubborn = False  # refuses every shape

    def say(self, text: str) -> None:
        self.logger.log(self.trt.ILogger.ERROR, text)

    num_io_tensors = 2
    num_optimization_profiles = len(PROFILES)

    def get_tensor_name(self, index: int) -> str:
        return ("coeffs", "input")[index]

    def get_tensor_mode(self, name: str) -> Mode:
        return Mode.INPUT if name == "input" else Mode.OUTPUT

    def get_tensor_dtype(self, name: str) -> Any:
        return SimpleNamespace(name="FLOAT")

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, 3, -1, -1) if name == "input" else (-1, 257)

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        return list(PROFILES[profile_index])

    def create_engine_inspector(self) -> Any:
        inspector = SimpleNamespace(execution_context=None)
        inspector.get_engine_information = lambda format: (
            "shapes known" if inspector.execution_context and inspector.execution_context.shape else "N/A"
        )
        return inspector

    def _made(self, kind: type[Context]) -> Context | None:
        if self.full:
            self.say("Out of memory")
            return None
        self.contexts.append(kind(self))
        return self.contexts[-1]


class OldEngine(Engine):
    """It gives the size where every profile has the same one."""

    device_memory_size = SCRATCH

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, 3, 224, 224) if name == "input" else (-1, 257)

    def create_execution_context(self) -> Context | None:
        return self._made(OldContext)

    def create_execution_context_without_device_memory(self) -> Context | None:
        return self._made(OldContext)


class NewEngine(Engine):
    device_memory_size_v2 = SCRATCH

    def create_execution_context(self, strategy: str = "STATIC") -> Context | None:
        made = self._made(NewContext)
        if made is not None and strategy == "STATIC":
            made.memory = (-1, SCRATCH)  # TensorRT's own
        return made


class Runtime:
    def __init__(self, logger: Any, trt: Any, kind: type[Engine]) -> None:
        self.logger, self.trt, self.kind = logger, trt, kind
        self.engine_host_code_allowed = False

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> Engine | None:
        if serialized_engine != PLAN:
            self.logger.log(self.trt.ILogger.ERROR, "Magic tag does not match")
            return None
        return self.kind(self.logger, self.trt)


class Double(SimpleNamespace):
    """`tensorrt`; hashable like a module."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def tensorrt(generation: str) -> Any:
    """The module of "8.6" or of "11"."""

    class ILogger:
        ERROR, WARNING = 1, 2

    class IProfiler:
        pass

    trt = Double(
        ILogger=ILogger, IProfiler=IProfiler, TensorIOMode=Mode, LayerInformationFormat=SimpleNamespace(JSON=1)
    )
    kind, context = (OldEngine, OldContext) if generation == "8.6" else (NewEngine, NewContext)
    trt.ICudaEngine, trt.IExecutionContext = kind, context
    if generation != "8.6":
        trt.ExecutionContextAllocationStrategy = SimpleNamespace(USER_MANAGED="USER_MANAGED")
    trt.Runtime = lambda logger: Runtime(logger, trt, kind)
    return trt
