"""Which TensorRT this machine has, and every difference between versions and flavours.

The one file that imports `tensorrt` or `tensorrt_rtx`. Nothing outside asks for a version; it asks a Flavour what it
can do.

| | TensorRT 8.6 | TensorRT 10, 11 | TensorRT-RTX |
|---|---|---|---|
| precision comes from | flags FP16, INT8 | the graph's types | the graph's types |
| graph | float32 or float32 Q/DQ, opset 17 | fp16 or fp16 Q/DQ | fp16 or fp16 Q/DQ |
| builds for | the GPU that is there | the GPU that is there | any of `targets`, without a GPU |
| timing cache | yes | yes | no |
| a build can be cancelled | no | yes | yes |
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.engine.messages import Messages
from face3d_trt.engine.network import network_operations, plan_operations, tensor_record
from face3d_trt.engine.phases import Phases
from face3d_trt.errors import BuildError, GraphError, MissingError, PlanError, ProfileError, UsageError
from face3d_trt.graph.counts import Tally, tally
from face3d_trt.names import INPUT
from face3d_trt.optional import install_command
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.engine.profile import Profile
    from face3d_trt.records import Gpu, Precision, TensorRecord

_DECODE = "decode/"  # the names of its nodes begin so


@dataclass(frozen=True)
class Recipe:
    """What a plan is built with, apart from the graph.

    Args:
        precision: Asked for.
        profiles: At least one.
        workspace: Limit of the scratch memory in bytes; None leaves it to TensorRT.
        targets: Compute capabilities, for a flavour that has `targets`.
    """

    precision: Precision
    profiles: tuple[Profile, ...]
    workspace: int | None = None
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """What a build gives: the raw plan, the timing cache if there is one, and in which precision the layers compute."""

    plan: bytes
    timing_cache: bytes | None
    tally: Tally


@dataclass(frozen=True)
class Parsed:
    """A network in TensorRT's hands. It lives as long as the builder and the parser that it came from."""

    network: Any
    builder: Any
    parser: Any
    messages: Messages

    @property
    def inputs(self) -> tuple[TensorRecord, ...]:
        """Inputs, -1 for a dynamic dimension."""
        return tuple(tensor_record(self.network.get_input(index)) for index in range(self.network.num_inputs))

    @property
    def outputs(self) -> tuple[TensorRecord, ...]:
        """Outputs, likewise."""
        return tuple(tensor_record(self.network.get_output(index)) for index in range(self.network.num_outputs))


@dataclass(frozen=True)
class Flavour:
    """One TensorRT, described by what it can do.

    Args:
        name: "tensorrt" or "tensorrt_rtx".
        version: Of the package.
        strongly_typed: The graph's types decide the precision; otherwise flags do, over a float32 graph.
        has_timing_cache: Builds can reuse measurements of earlier ones.
        cancellable: A running build can be stopped.
        targets: Compute capabilities it builds for without their GPU; empty: for the GPU of this machine only.
        default_targets: Those of them that are built for when none are named.
        opset: ONNX operator set that the graph is given in, at least.
        gpu: The GPU a plan is built on; None when it is built without one.
    """

    name: Literal["tensorrt", "tensorrt_rtx"]
    version: str
    strongly_typed: bool
    has_timing_cache: bool
    cancellable: bool
    targets: tuple[str, ...]
    default_targets: tuple[str, ...]
    opset: int
    gpu: Gpu | None
    module: Any = field(repr=False, compare=False)

    def __str__(self) -> str:
        title = "TensorRT" if self.name == "tensorrt" else "TensorRT-RTX"
        place = f" for {self.gpu.name} ({self.gpu.compute_capability})" if self.gpu else ""
        return f"{title} {self.version}{place}"

    def choose_targets(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Compute capabilities to build for.

        Raises:
            UsageError: This flavour does not build for one of `asked`.
        """
        if not asked:
            return self.default_targets
        if not self.targets:
            here = self.gpu.compute_capability if self.gpu else "unknown"
            raise UsageError(
                f"--target {asked[0]}: {self} builds for the GPU of this machine only, which is {here}",
                allowed="no --target here; TensorRT-RTX builds for other GPUs",
                run=f"{install_command('rtx')}    # on a machine without TensorRT",
            )
        for target in asked:
            if target not in self.targets:
                raise UsageError(
                    f"--target {target}: {self} does not build for that compute capability",
                    allowed=", ".join(self.targets),
                    run="nvidia-smi --query-gpu=name,compute_cap --format=csv",
                )
        return tuple(target for target in self.targets if target in asked)

    def parse(self, onnx: Path) -> Parsed:
        """Read an ONNX file into a network.

        Raises:
            GraphError: TensorRT's parser does not understand it; the message names the nodes.
        """
        trt = self.module
        messages = Messages()
        logger = _logger(trt)
        logger.messages = messages
        builder = trt.Builder(logger)
        flags = 0
        for name in ("EXPLICIT_BATCH", "STRONGLY_TYPED"):  # before 10, and from 10 on
            if flag := getattr(trt.NetworkDefinitionCreationFlag, name, None):
                flags |= 1 << int(flag)
        network = builder.create_network(flags)
        parser = trt.OnnxParser(network, builder.logger)
        if not parser.parse_from_file(str(onnx)):
            problems = [_describe(parser.get_error(index)) for index in range(parser.num_errors)] or messages.errors()
            raise GraphError(
                f"{self} cannot read {onnx}:\n    " + "\n    ".join(problems), run="face3d-trt export, then build again"
            )
        return Parsed(network, builder, parser, messages)

    def build(
        self,
        parsed: Parsed,
        recipe: Recipe,
        timing_cache: bytes | None = None,
        *,
        cancelled: threading.Event | None = None,
        report: Reporter = SILENT,
    ) -> Built:
        """Build a plan; takes from a second to minutes.

        Args:
            parsed: The network, used up by this call.
            recipe: What to build with.
            timing_cache: Measurements of an earlier build, `b""` to begin some; None for no cache.
            cancelled: Stops the build once it is set, where the flavour is `cancellable`.
            report: Hears progress and TensorRT's warnings.

        Raises:
            ProfileError: A profile does not fit the graph.
            BuildError: TensorRT gave no plan.
        """
        _logger(self.module).messages = parsed.messages
        config = parsed.builder.create_builder_config()
        self._configure(config, parsed, recipe)
        if timing_cache is not None:
            self._use_cache(config, timing_cache, report)
        phases = Phases(report, f"building with {self}")
        monitor = None
        if self.cancellable:
            monitor = config.progress_monitor = _monitor(self.module, phases, cancelled or threading.Event())
        try:
            plan = parsed.builder.build_serialized_network(parsed.network, config)
        finally:
            parsed.messages.warn(report, str(self))
        del monitor  # TensorRT holds it by address only, so it had to outlive the build
        if plan is None:
            reasons = parsed.messages.errors() or ["it gave no reason"]
            raise BuildError(
                f"{self} built no plan:\n    " + "\n    ".join(reasons),
                allowed="a larger --workspace, or none" if recipe.workspace is not None else None,
                run="face3d-trt doctor",
            )
        data = bytes(plan)
        cache = bytes(config.get_timing_cache().serialize()) if timing_cache is not None else None
        return Built(data, cache, self.tally(parsed) if self.strongly_typed else self._inspect(data, parsed))

    def tally(self, parsed: Parsed) -> Tally:
        """In which precision the layers of a strongly typed network compute."""
        return tally(network_operations(parsed.network))

    def runners(self, plan: bytes) -> Callable[[int], Any]:
        """Polygraphy runners of a plan: from the index of an optimization profile to a runner named `tensorrt`.

        Raises:
            PlanError: This TensorRT cannot read the plan.
        """
        from polygraphy.backend.trt import TrtRunner

        messages = _logger(self.module).messages = Messages()
        runtime = self.module.Runtime(_logger(self.module))
        engine = runtime.deserialize_cuda_engine(plan)
        if engine is None:
            reasons = messages.errors() or ["it gave no reason"]
            raise PlanError(f"{self} cannot read the plan:\n    " + "\n    ".join(reasons), run="face3d-trt build")

        def runner(profile: int) -> Any:
            _ = runtime  # it has to outlive the engine
            return TrtRunner(engine, name="tensorrt", optimization_profile=profile)

        return runner

    def _configure(self, config: Any, parsed: Parsed, recipe: Recipe) -> None:
        trt = self.module
        # TF32 rounds to 10 bits, which in the decode's float32 would cost 0.1 mm.
        config.clear_flag(trt.BuilderFlag.TF32)
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        if recipe.workspace is not None:
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, recipe.workspace)
        if hasattr(trt.TacticSource, "CUDNN"):  # the package does not ask for cuDNN and cuBLAS to be there
            own = (trt.TacticSource.EDGE_MASK_CONVOLUTIONS, trt.TacticSource.JIT_CONVOLUTIONS)
            config.set_tactic_sources(sum(1 << int(source) for source in own))
        for profile in recipe.profiles:
            shapes = parsed.builder.create_optimization_profile()
            shapes.set_shape(INPUT, profile.min, profile.opt, profile.max)
            if config.add_optimization_profile(shapes) < 0:
                raise ProfileError(
                    f"profile '{profile}' does not fit the graph", run="face3d-trt build, without --profile"
                )
        if recipe.targets:
            config.num_compute_capabilities = len(recipe.targets)
            for index, target in enumerate(recipe.targets):
                capability = getattr(trt.ComputeCapability, "SM" + target.replace(".", ""))
                if not config.set_compute_capability(capability, index):
                    raise BuildError(f"{self} refused the target {target}", allowed=", ".join(self.targets))
        if not self.strongly_typed:
            self._set_flags(config, parsed.network, recipe.precision)

    def _set_flags(self, config: Any, network: Any, precision: Precision) -> None:
        trt = self.module
        if precision == "fp32":
            return
        config.set_flag(trt.BuilderFlag.FP16)
        if precision == "int8":
            config.set_flag(trt.BuilderFlag.INT8)
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
        for layer in (network.get_layer(index) for index in range(network.num_layers)):
            if layer.name.startswith(_DECODE) and layer.type.name != "CONSTANT":
                outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
                if all(tensor.dtype == trt.DataType.FLOAT for tensor in outputs):
                    layer.precision = trt.DataType.FLOAT

    def _use_cache(self, config: Any, data: bytes, report: Reporter) -> None:
        cache = config.create_timing_cache(data)
        if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
            report.warn(f"the timing cache is not one of {self}; it is left aside and a fresh one begun")
            config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)

    def _inspect(self, plan: bytes, parsed: Parsed) -> Tally:
        trt = self.module
        engine = trt.Runtime(parsed.builder.logger).deserialize_cuda_engine(plan)
        if engine is None:
            raise BuildError(f"{self} cannot read the plan it has just built", run="face3d-trt doctor")
        inspection = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
        return tally(plan_operations(inspection))


def find_flavour() -> Flavour:
    """`tensorrt` where there is a GPU and the package, else `tensorrt_rtx`.

    Raises:
        MissingError: Neither can be imported.
    """
    gpus = visible_gpus()
    reasons: list[str] = []
    candidates: list[tuple[str, Callable[[Any], Flavour]]] = [("tensorrt_rtx", _rtx)]
    if gpus:
        candidates.insert(0, ("tensorrt", lambda module: _tensorrt(module, gpus[0])))
    for name, describe in candidates:
        module = _import(name, reasons)
        if module is not None:
            return describe(module)
    here = f"this machine has a GPU ({gpus[0].name})" if gpus else "this machine has no GPU"
    raise MissingError(
        f"{here} and no TensorRT that can be imported ({'; '.join(reasons)})",
        allowed="tensorrt with a GPU; tensorrt_rtx with or without one",
        run=install_command("gpu" if gpus else "rtx"),
    )


def _import(name: str, reasons: list[str]) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: the package is there, a library it loads is not
        reasons.append(f"{name}: {error}")
        return None


def _tensorrt(trt: Any, gpu: Gpu) -> Flavour:
    typed = hasattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
    return Flavour(
        name="tensorrt",
        version=trt.__version__,
        strongly_typed=typed,
        has_timing_cache=True,
        cancellable=hasattr(trt, "IProgressMonitor"),
        targets=(),
        default_targets=(),
        opset=19 if typed else 17,  # 19: the first whose Q/DQ takes fp16; 17: the newest that 8.6's parser takes
        gpu=gpu,
        module=trt,
    )


def _rtx(trt: Any) -> Flavour:
    names = [name for name in dir(trt.ComputeCapability) if name.startswith("SM") and name[2:].isdigit()]
    targets = sorted((f"{name[2:-1]}.{name[-1]}" for name in names), key=lambda text: tuple(map(int, text.split("."))))
    return Flavour(
        name="tensorrt_rtx",
        version=trt.__version__,
        strongly_typed=True,
        has_timing_cache=False,
        cancellable=True,
        targets=tuple(targets),
        default_targets=tuple(target for target in targets if int(target.split(".")[0]) >= 8),  # Ampere and newer
        opset=19,
        gpu=None,
        module=trt,
    )


def _describe(error: Any) -> str:
    if hasattr(error, "node_name"):  # from 10 on
        return f"node {error.node_name() or error.node()} ({error.node_operator()}): {error.desc()}"
    return f"node number {error.node()}: {error.desc()}" if error.node() >= 0 else str(error.desc())


@functools.lru_cache
def _logger(trt: Any) -> Any:
    # TensorRT keeps the first logger of the process for everything, so there is one, which writes where it is told.
    class Logger(trt.ILogger):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages = Messages()

        def log(self, severity: Any, text: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.messages.add("error", text)
            elif severity == trt.ILogger.WARNING:
                self.messages.add("warning", text)

    return Logger()


def _monitor(trt: Any, phases: Phases, cancelled: threading.Event) -> Any:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # likewise
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, name: str, parent: str | None, steps: int) -> None:
            phases.start(name, parent, steps)

        def step_complete(self, name: str, step: int) -> bool:
            phases.step(name, step)
            return not cancelled.is_set()

        def phase_finish(self, name: str) -> None:
            phases.finish(name)

    return Monitor()
