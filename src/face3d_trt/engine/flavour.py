"""Which TensorRT this machine has, and every difference between versions and flavours.

The one file that imports `tensorrt` or `tensorrt_rtx` (callbacks.py is handed the module). Nothing outside asks for a
version; it asks a Flavour what it can do.

| | TensorRT 8.6 | TensorRT 10, 11 | TensorRT-RTX |
|---|---|---|---|
| precision comes from | flags FP16, INT8 | the graph's types | the graph's types |
| graph | float32 or float32 Q/DQ, opset 17 | fp16 or fp16 Q/DQ | fp16 or fp16 Q/DQ |
| builds for | the GPU that is there | the GPU that is there | any of `targets`, without a GPU |
| timing cache | yes | yes | no |
| a build can be cancelled | no | yes | yes |
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from face3d_trt.engine.callbacks import monitor, speaking_to
from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.engine.loaded import LoadedPlan, load_plan
from face3d_trt.engine.messages import Messages
from face3d_trt.engine.network import network_operations, plan_operations
from face3d_trt.engine.phases import Phases
from face3d_trt.engine.values import Built, Parsed, Recipe
from face3d_trt.errors import BuildError, GraphError, MissingError, PlanError, ProfileError, UsageError
from face3d_trt.graph.counts import Tally, tally
from face3d_trt.names import INPUT
from face3d_trt.optional import install_command
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.records import Gpu, Manifest, Precision

_DECODE = "decode/"  # the names of its nodes begin so


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

    def can_run(self, manifest: Manifest) -> str | None:
        """Why this TensorRT cannot run a plan on this machine's GPU; None where it can.

        A plan runs with the TensorRT of the version that built it, on a GPU of the same compute capability.
        TensorRT-RTX would compile the plan's kernels for the GPU first; that is not done here.
        """
        if manifest.flavour != "tensorrt":
            return "it is a plan of TensorRT-RTX"
        built = f"it was built with TensorRT {manifest.flavour_version}"
        if (self.name, self.version) != (manifest.flavour, manifest.flavour_version):
            return f"{built}, and this machine has {self}"
        before, now = manifest.gpu, self.gpu
        if before and now and before.compute_capability != now.compute_capability:
            here = f"{now.name} ({now.compute_capability})"
            return f"{built} for {before.name} ({before.compute_capability}), and this machine has {here}"
        return None

    def parse(self, onnx: bytes, name: str) -> Parsed:
        """Read the bytes of an ONNX file into a network.

        Args:
            onnx: One file, weights included.
            name: What messages call it.

        Raises:
            GraphError: TensorRT's parser does not understand it; the message names the nodes.
        """
        trt = self.module
        messages = Messages()
        with speaking_to(trt, messages) as logger:
            builder = trt.Builder(logger)
            flags = 0
            for flag_name in ("EXPLICIT_BATCH", "STRONGLY_TYPED"):  # before 10, and from 10 on
                if flag := getattr(trt.NetworkDefinitionCreationFlag, flag_name, None):
                    flags |= 1 << int(flag)
            network = builder.create_network(flags)
            parser = trt.OnnxParser(network, builder.logger)
            if not parser.parse(onnx):
                errors = [_describe(parser.get_error(index)) for index in range(parser.num_errors)]
                raise GraphError(
                    f"{self} cannot read {name}:\n    " + "\n    ".join(errors or messages.errors()),
                    run="face3d-trt export, then build again",
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
        with speaking_to(self.module, parsed.messages):
            config = parsed.builder.create_builder_config()
            self._configure(config, parsed, recipe)
            if timing_cache is not None:
                self._use_cache(config, timing_cache, report)
            phases = Phases(report, f"building with {self}")
            watch = None
            if self.cancellable:
                watch = config.progress_monitor = monitor(self.module, phases, cancelled or threading.Event())
            try:
                plan = parsed.builder.build_serialized_network(parsed.network, config)
            finally:
                parsed.messages.warn(report, str(self))
            del watch  # TensorRT holds it by address only, so it had to outlive the build
            if plan is None:
                reasons = parsed.messages.errors() or ["it gave no reason"]
                raise BuildError(
                    f"{self} built no plan:\n    " + "\n    ".join(reasons),
                    allowed="a larger --workspace, or none" if recipe.workspace is not None else None,
                    run="face3d-trt doctor",
                )
            data = bytes(plan)
            cache = bytes(config.get_timing_cache().serialize()) if timing_cache is not None else None
            inspected = self._inspect(data, parsed) if self.gpu else None
        return Built(data, cache, inspected if inspected and not self.strongly_typed else self.tally(parsed), inspected)

    def tally(self, parsed: Parsed) -> Tally:
        """In which precision the layers of a strongly typed network compute."""
        return tally(network_operations(parsed.network))

    def load(self, plan: bytes, where: str, *, host_code: bool = False) -> LoadedPlan:
        """A plan, deserialised on the device whose CUDA context is current in this thread.

        Args:
            plan: Raw.
            where: What messages call it.
            host_code: The manifest's `version_compat`: whether the runtime that such a plan carries may run.

        Raises:
            PlanError: This TensorRT refuses the plan.
        """
        return load_plan(self.module, str(self), plan, where, host_code=host_code)

    def runners(self, plan: bytes) -> Callable[[int], Any]:
        """Polygraphy runners of a plan: from the index of an optimization profile to a runner named `tensorrt`.

        Raises:
            PlanError: This TensorRT cannot read the plan.
        """
        from polygraphy.backend.trt import TrtRunner

        messages = Messages()
        with speaking_to(self.module, messages) as logger:
            runtime = self.module.Runtime(logger)
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
            foreign = (trt.TacticSource.CUBLAS, trt.TacticSource.CUBLAS_LT, trt.TacticSource.CUDNN)
            config.set_tactic_sources(config.get_tactic_sources() & ~sum(1 << int(source) for source in foreign))
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
        pinned = False
        for layer in (network.get_layer(index) for index in range(network.num_layers)):
            if layer.name.startswith(_DECODE) and layer.type.name != "CONSTANT":
                outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
                if all(tensor.dtype == trt.DataType.FLOAT for tensor in outputs):
                    layer.precision = trt.DataType.FLOAT
                    pinned = True
        if pinned:  # only then: with it, 8.6 refused a Q/DQ graph that has nothing pinned
            config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)

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


def find_flavour(report: Reporter = SILENT) -> Flavour:
    """`tensorrt` where there is a GPU and the package, else `tensorrt_rtx`.

    Args:
        report: Warned when there is a GPU and it has to be TensorRT-RTX nevertheless.

    Raises:
        MissingError: Neither can be imported.
    """
    gpus = visible_gpus()
    reasons: list[str] = []
    if gpus and (module := _import("tensorrt", reasons)) is not None:
        return _tensorrt(module, gpus[0])
    if (module := _import("tensorrt_rtx", reasons)) is not None:
        flavour = _rtx(module)
        if gpus:
            report.warn(_instead(flavour, gpus[0], reasons[0]))
        return flavour
    here = f"this machine has a GPU ({gpus[0].name})" if gpus else "this machine has no GPU"
    raise MissingError(
        f"{here} and no TensorRT that can be imported ({'; '.join(reasons)})",
        allowed="tensorrt with a GPU; tensorrt_rtx with or without one",
        run=install_command("gpu" if gpus else "rtx"),
    )


def _instead(rtx: Flavour, gpu: Gpu, reason: str) -> str:
    """Why TensorRT-RTX takes the place of TensorRT, and whether this GPU can run what it builds."""
    here = f"{gpu.name} ({gpu.compute_capability})"
    text = f"{here} is here, but not TensorRT ({reason}): {rtx} builds instead"
    if gpu.compute_capability not in rtx.targets:
        text += f"; its plans do NOT run on this GPU, only on {', '.join(rtx.targets)}"
    return f"{text}. For TensorRT: {install_command('gpu')}"


def _import(name: str, reasons: list[str]) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: the package is there, a library it loads is not
        reasons.append(f"{name}: {error}")
        return None


def rtx_runs_on(compute_capability: str) -> bool:
    """TensorRT-RTX runs engines on Turing, Ampere, Ada and consumer Blackwell; it refuses Volta, Hopper and 10.x."""
    return compute_capability == "7.5" or compute_capability.partition(".")[0] in ("8", "12")


def precision_by_flags(name: str, version: tuple[int, ...]) -> bool:
    """Whether flags decide the precision, told without importing the package: TensorRT before 9 has no typed networks.

    Args:
        name: "tensorrt" or "tensorrt_rtx".
        version: As numbers, (8, 6, 0); empty if it is unknown.
    """
    return name == "tensorrt" and () < version < (9,)


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
