"""The part of TensorRT that this package uses, as types: mypy refuses any attribute that is not declared here.

The same declarations describe `tensorrt` 8.6, 10 and 11 and `tensorrt_rtx`. What only some of them have stands in
ONLY_IN, and code asks `has` before it uses it. tests/engine/test_api.py holds every member against 8.6, 11 and RTX.

CLASSES maps TensorRT's own names to the protocols; a protocol of an enumeration lists the values that are used.
"""

# ruff: noqa: D102  # the members are TensorRT's, and documented there

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

OLD, TYPED, RTX = "TensorRT 8.6", "TensorRT 10 and 11", "TensorRT-RTX"
_NEW = frozenset({TYPED, RTX})
_OLD = frozenset({OLD})

# Dotted name -> who has it. Everything else is in all three.
ONLY_IN: Final[dict[str, frozenset[str]]] = {
    "ComputeCapability": frozenset({RTX}),
    "IBuilderConfig.num_compute_capabilities": frozenset({RTX}),
    "IBuilderConfig.set_compute_capability": frozenset({RTX}),
    "IProgressMonitor": _NEW,
    "IBuilderConfig.progress_monitor": _NEW,
    "NetworkDefinitionCreationFlag.STRONGLY_TYPED": _NEW,
    "NetworkDefinitionCreationFlag.EXPLICIT_BATCH": frozenset({OLD, "TensorRT 10"}),
    "BuilderFlag.FP16": frozenset({OLD, "TensorRT 10"}),
    "BuilderFlag.INT8": frozenset({OLD, "TensorRT 10"}),
    "BuilderFlag.OBEY_PRECISION_CONSTRAINTS": frozenset({OLD, "TensorRT 10"}),
    "TacticSource.CUBLAS": frozenset({OLD, "TensorRT 10"}),
    "TacticSource.CUBLAS_LT": frozenset({OLD, "TensorRT 10"}),
    "TacticSource.CUDNN": frozenset({OLD, "TensorRT 10"}),
    "PreviewFeature.PROFILE_SHARING_0806": frozenset({OLD, "TensorRT 10"}),
    "ILayer.precision": frozenset({OLD, "TensorRT 10"}),
    "ParserError.node_name": _NEW,
    "ParserError.node_operator": _NEW,
    "ICudaEngine.device_memory_size": frozenset({OLD, "TensorRT 10"}),
    "ICudaEngine.device_memory_size_v2": _NEW,  # from 10.1 on
    "ICudaEngine.create_execution_context_without_device_memory": frozenset({OLD, "TensorRT 10"}),
    "ExecutionContextAllocationStrategy": _NEW,
    "IExecutionContext.set_device_memory": _NEW,  # from 10.1 on
}


def has(module: Module, name: str) -> bool:
    """Whether this TensorRT has what ONLY_IN lists as `name`, like "BuilderFlag.FP16"."""
    if name not in ONLY_IN:
        raise KeyError(name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


class Value(Protocol):
    """A value of one of TensorRT's enumerations."""

    @property
    def name(self) -> str:
        """As written in the API."""

    def __int__(self) -> int: ...


class Logger(Protocol):
    """ILogger, which callbacks.py derives from."""

    ERROR: Any
    WARNING: Any


class HostMemory(Protocol):
    """IHostMemory: bytes that TensorRT made."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class Tensor(Protocol):
    """ITensor of a network."""

    name: str

    @property
    def dtype(self) -> Value: ...
    @property
    def shape(self) -> Iterable[int]: ...


class Layer(Protocol):
    """ILayer of a network."""

    name: str
    precision: Value

    @property
    def type(self) -> Value: ...
    @property
    def num_inputs(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...
    def get_input(self, index: int) -> Tensor | None: ...
    def get_output(self, index: int) -> Tensor: ...


class Network(Protocol):
    """INetworkDefinition."""

    @property
    def num_layers(self) -> int: ...
    @property
    def num_inputs(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...
    def get_layer(self, index: int) -> Layer: ...
    def get_input(self, index: int) -> Tensor: ...
    def get_output(self, index: int) -> Tensor: ...


class ParserError(Protocol):
    """What the ONNX parser did not understand."""

    def node(self) -> int: ...
    def desc(self) -> str: ...
    def node_name(self) -> str: ...
    def node_operator(self) -> str: ...


class Parser(Protocol):
    """OnnxParser."""

    @property
    def num_errors(self) -> int: ...
    def parse(self, model: bytes) -> bool: ...
    def get_error(self, index: int) -> ParserError: ...


class OptimizationProfile(Protocol):
    """IOptimizationProfile."""

    def set_shape(self, input: str, min: tuple[int, ...], opt: tuple[int, ...], max: tuple[int, ...]) -> None: ...


class TimingCache(Protocol):
    """ITimingCache."""

    def serialize(self) -> HostMemory: ...
    def combine(self, input_cache: TimingCache, ignore_mismatch: bool) -> bool: ...


class BuilderConfig(Protocol):
    """IBuilderConfig."""

    profiling_verbosity: Value
    builder_optimization_level: int
    hardware_compatibility_level: Value
    progress_monitor: Any
    num_compute_capabilities: int

    def set_flag(self, flag: Value) -> None: ...
    def clear_flag(self, flag: Value) -> None: ...
    def set_memory_pool_limit(self, pool: Value, pool_size: int) -> None: ...
    def get_tactic_sources(self) -> int: ...
    def set_tactic_sources(self, tactic_sources: int) -> bool: ...
    def set_preview_feature(self, feature: Value, enable: bool) -> None: ...
    def add_optimization_profile(self, profile: OptimizationProfile) -> int: ...
    def set_compute_capability(self, compute_capability: Value, index: int) -> bool: ...
    def create_timing_cache(self, serialized_timing_cache: bytes) -> TimingCache | None: ...
    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool: ...
    def get_timing_cache(self) -> TimingCache: ...


class Builder(Protocol):
    """Builder."""

    @property
    def logger(self) -> Logger: ...
    def create_network(self, flags: int) -> Network: ...
    def create_builder_config(self) -> BuilderConfig: ...
    def create_optimization_profile(self) -> OptimizationProfile: ...
    def build_serialized_network(self, network: Network, config: BuilderConfig) -> HostMemory | None: ...


class Context(Protocol):
    """IExecutionContext."""

    profiler: Any
    device_memory: int

    def set_device_memory(self, memory: int, size: int) -> None: ...
    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool: ...
    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool: ...
    def get_tensor_shape(self, name: str) -> Iterable[int]: ...
    def set_tensor_address(self, name: str, memory: int) -> bool: ...
    def execute_async_v3(self, stream_handle: int) -> bool: ...


class Inspector(Protocol):
    """EngineInspector."""

    execution_context: Context

    def get_engine_information(self, format: Value) -> str: ...


class Engine(Protocol):
    """ICudaEngine."""

    @property
    def num_io_tensors(self) -> int: ...
    @property
    def num_optimization_profiles(self) -> int: ...
    @property
    def device_memory_size(self) -> int: ...
    @property
    def device_memory_size_v2(self) -> int: ...
    def get_tensor_name(self, index: int) -> str: ...
    def get_tensor_mode(self, name: str) -> Value: ...
    def get_tensor_dtype(self, name: str) -> Value: ...
    def get_tensor_shape(self, name: str) -> Iterable[int]: ...
    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Iterable[int]]: ...
    def create_execution_context(self, strategy: Value = ...) -> Context | None: ...  # no strategy in 8.6
    def create_execution_context_without_device_memory(self) -> Context | None: ...
    def create_engine_inspector(self) -> Inspector: ...


class Runtime(Protocol):
    """Runtime."""

    engine_host_code_allowed: bool

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> Engine | None: ...


class NetworkFlags(Protocol):
    """NetworkDefinitionCreationFlag."""

    EXPLICIT_BATCH: Value
    STRONGLY_TYPED: Value


class BuilderFlags(Protocol):
    """BuilderFlag."""

    TF32: Value
    FP16: Value
    INT8: Value
    OBEY_PRECISION_CONSTRAINTS: Value
    VERSION_COMPATIBLE: Value


class TacticSources(Protocol):
    """TacticSource."""

    CUBLAS: Value
    CUBLAS_LT: Value
    CUDNN: Value


class PreviewFeatures(Protocol):
    """PreviewFeature."""

    PROFILE_SHARING_0806: Value


class HardwareCompatibilityLevels(Protocol):
    """HardwareCompatibilityLevel."""

    AMPERE_PLUS: Value


class ProfilingVerbosities(Protocol):
    """ProfilingVerbosity."""

    DETAILED: Value


class MemoryPools(Protocol):
    """MemoryPoolType."""

    WORKSPACE: Value


class InformationFormats(Protocol):
    """LayerInformationFormat."""

    JSON: Value


class IOModes(Protocol):
    """TensorIOMode."""

    INPUT: Value


class DataTypes(Protocol):
    """DataType."""

    FLOAT: Value


class AllocationStrategies(Protocol):
    """ExecutionContextAllocationStrategy."""

    USER_MANAGED: Value


_MakeBuilder = Callable[[Logger], Builder]
_MakeParser = Callable[[Network, Logger], Parser]
_MakeRuntime = Callable[[Logger], Runtime]


class Module(Protocol):
    """`tensorrt` or `tensorrt_rtx`."""

    __version__: str
    ILogger: type[Any]
    IProgressMonitor: type[Any]
    IProfiler: type[Any]
    ComputeCapability: Any  # its values are the targets: SM75, SM86, ...

    @property
    def Builder(self) -> _MakeBuilder: ...  # noqa: N802  # TensorRT's names, here and below
    @property
    def OnnxParser(self) -> _MakeParser: ...  # noqa: N802
    @property
    def Runtime(self) -> _MakeRuntime: ...  # noqa: N802

    NetworkDefinitionCreationFlag: NetworkFlags
    BuilderFlag: BuilderFlags
    TacticSource: TacticSources
    PreviewFeature: PreviewFeatures
    HardwareCompatibilityLevel: HardwareCompatibilityLevels
    ProfilingVerbosity: ProfilingVerbosities
    MemoryPoolType: MemoryPools
    LayerInformationFormat: InformationFormats
    TensorIOMode: IOModes
    DataType: DataTypes
    ExecutionContextAllocationStrategy: AllocationStrategies


CLASSES: Final[dict[str, type[Any]]] = {
    "Builder": Builder,
    "BuilderFlag": BuilderFlags,
    "DataType": DataTypes,
    "EngineInspector": Inspector,
    "ExecutionContextAllocationStrategy": AllocationStrategies,
    "HardwareCompatibilityLevel": HardwareCompatibilityLevels,
    "IBuilderConfig": BuilderConfig,
    "ICudaEngine": Engine,
    "IExecutionContext": Context,
    "IHostMemory": HostMemory,
    "ILayer": Layer,
    "ILogger": Logger,
    "INetworkDefinition": Network,
    "IOptimizationProfile": OptimizationProfile,
    "ITensor": Tensor,
    "ITimingCache": TimingCache,
    "LayerInformationFormat": InformationFormats,
    "MemoryPoolType": MemoryPools,
    "NetworkDefinitionCreationFlag": NetworkFlags,
    "OnnxParser": Parser,
    "ParserError": ParserError,
    "PreviewFeature": PreviewFeatures,
    "ProfilingVerbosity": ProfilingVerbosities,
    "Runtime": Runtime,
    "TacticSource": TacticSources,
    "TensorIOMode": IOModes,
}
