"""A network and a recipe to a plan, by whichever TensorRT."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from face3d_trt.engine.api import has
from face3d_trt.engine.callbacks import monitor, speaking_to
from face3d_trt.engine.network import plan_operations
from face3d_trt.engine.phases import Phases, heartbeat
from face3d_trt.engine.values import Built, Parsed, Recipe
from face3d_trt.errors import BuildError, EngineError, PlanError, ProfileError
from face3d_trt.graph.counts import tally
from face3d_trt.names import INPUT

if TYPE_CHECKING:
    from face3d_trt.engine import api
    from face3d_trt.engine.flavour import Flavour
    from face3d_trt.graph.counts import Tally
    from face3d_trt.records import Precision
    from face3d_trt.report import Reporter

_DECODE = "decode/"  # the names of its nodes begin so


def build(
    flavour: Flavour,
    parsed: Parsed,
    recipe: Recipe,
    timing_cache: bytes | None,
    cancelled: threading.Event,
    report: Reporter,
) -> Built:
    """Build a plan; `Flavour.build` has the description."""
    trt = flavour.module
    with speaking_to(trt, parsed.messages):
        config = parsed.builder.create_builder_config()
        configure(flavour, config, parsed, recipe)
        if timing_cache is not None:
            _use_cache(flavour, config, timing_cache, report)
        try:
            with _progress(flavour, config, cancelled, report):
                plan = parsed.builder.build_serialized_network(parsed.network, config)
        finally:
            parsed.messages.warn(report, str(flavour))
        if plan is None:
            raise _refusal(flavour, parsed, recipe)
        data = bytes(plan)
        cache = bytes(config.get_timing_cache().serialize()) if timing_cache is not None else None
        inspection = inspect(flavour, data, recipe) if flavour.gpu else None
    inspected = _counted(flavour, inspection) if inspection is not None else None
    found = inspected if inspected is not None and not flavour.strongly_typed else flavour.tally(parsed)
    return Built(data, cache, found, inspected, inspection)


def configure(flavour: Flavour, config: api.BuilderConfig, parsed: Parsed, recipe: Recipe) -> None:
    """Bring a recipe into a builder's configuration.

    Raises:
        ProfileError: A profile does not fit the graph.
        BuildError: A target is refused.
    """
    trt = flavour.module
    # TF32 rounds to 10 bits, which in the decode's float32 would cost 0.1 mm.
    config.clear_flag(trt.BuilderFlag.TF32)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    _set_options(trt, config, recipe)
    _leave_out_libraries(trt, config)
    if has(trt, "PreviewFeature.PROFILE_SHARING_0806"):  # else one context per profile; from 10 on it is always so
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
    for profile in recipe.profiles:
        shapes = parsed.builder.create_optimization_profile()
        shapes.set_shape(INPUT, profile.min, profile.opt, profile.max)
        if config.add_optimization_profile(shapes) < 0:
            raise ProfileError(f"profile '{profile}' does not fit the graph", run="face3d-trt build, without --profile")
    if recipe.targets:
        _set_targets(flavour, config, recipe.targets)
    if not flavour.strongly_typed:
        set_precision(trt, config, parsed.network, recipe.precision, recipe.pinned)


def set_precision(
    trt: api.Module,
    config: api.BuilderConfig,
    network: api.Network,
    precision: Precision,
    kept: tuple[str, ...] = (),
) -> None:
    """Where the graph's types do not bind: the flags, and the decode and the nodes `kept` pinned to float32.

    Raises:
        BuildError: The network has no layer of one of these names.
    """
    if precision == "fp32":
        return
    config.set_flag(trt.BuilderFlag.FP16)
    if precision == "int8":
        config.set_flag(trt.BuilderFlag.INT8)
    pinned = False
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    if lost := sorted(set(kept) - {layer.name for layer in layers}):
        raise BuildError(
            f"TensorRT has no layer for {lost[0]}, which was to stay in float32",
            allowed="nodes that TensorRT's parser turns into a layer of that name",
            run="face3d-trt build --fp16, with a --keep list without it",
        )
    for layer in layers:
        if (layer.name.startswith(_DECODE) or layer.name in kept) and layer.type.name != "CONSTANT":
            outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
            if all(tensor.dtype == trt.DataType.FLOAT for tensor in outputs):
                layer.precision = trt.DataType.FLOAT
                pinned = True
    if pinned:  # only then: with it, 8.6 refused a Q/DQ graph that has nothing pinned
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)


def inspect(flavour: Flavour, plan: bytes, recipe: Recipe) -> str:
    """The engine inspector's JSON of a plan just built, at the usual shape of its first profile.

    Raises:
        BuildError: TensorRT cannot read its own plan.
    """
    try:
        loaded = flavour.load(plan, "the plan it has just built", host_code=recipe.version_compat)
    except PlanError as error:
        raise BuildError(error.problem, run="face3d-trt doctor") from error
    try:
        try:
            context = loaded.context(0, stream=0)
            for tensor in loaded.inputs:
                context.set_input_shape(tensor.name, loaded.profiles[0].opt)
        except EngineError:  # no memory left for a context: what does not hang on shapes is known without
            return loaded.layer_information()
        return loaded.layer_information(context)
    finally:
        loaded.close()


def _counted(flavour: Flavour, inspection: str) -> Tally | None:
    """The layers with weights by precision; None where they cannot be read and need not be, as the graph's types bind.

    Raises:
        BuildError: They cannot be read, and nothing else tells the precision.
    """
    try:
        return tally(plan_operations(inspection))
    except ValueError as error:
        if flavour.strongly_typed:
            return None
        raise BuildError(
            f"{flavour} built a plan and its inspector's answer cannot be read ({error}), so its precision is unknown",
            run="face3d-trt doctor",
        ) from error


def merge_timings(flavour: Flavour, parsed: Parsed, ours: bytes, theirs: bytes) -> bytes:
    """Timing cache `ours` with what `theirs` has beyond it; `ours` alone if that is not one for this GPU."""
    with speaking_to(flavour.module, parsed.messages):
        config = parsed.builder.create_builder_config()
        mine, other = config.create_timing_cache(ours), config.create_timing_cache(theirs)
        if mine is None or other is None or not mine.combine(other, False):
            return ours
        return bytes(mine.serialize())


def _set_options(trt: api.Module, config: api.BuilderConfig, recipe: Recipe) -> None:
    if recipe.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, recipe.workspace)
    if recipe.optimization_level is not None:
        config.builder_optimization_level = recipe.optimization_level
    if recipe.hardware_compat:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if recipe.version_compat:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)


def _leave_out_libraries(trt: api.Module, config: api.BuilderConfig) -> None:
    """The package does not ask for cuDNN and cuBLAS to be there."""
    if has(trt, "TacticSource.CUDNN"):
        foreign = (trt.TacticSource.CUBLAS, trt.TacticSource.CUBLAS_LT, trt.TacticSource.CUDNN)
        config.set_tactic_sources(config.get_tactic_sources() & ~sum(1 << int(source) for source in foreign))


def _set_targets(flavour: Flavour, config: api.BuilderConfig, targets: tuple[str, ...]) -> None:
    config.num_compute_capabilities = len(targets)
    for index, target in enumerate(targets):
        capability = getattr(flavour.module.ComputeCapability, "SM" + target.replace(".", ""))
        if not config.set_compute_capability(capability, index):
            raise BuildError(f"{flavour} refused the target {target}", allowed=", ".join(flavour.targets))


def _use_cache(flavour: Flavour, config: api.BuilderConfig, data: bytes, report: Reporter) -> None:
    cache = config.create_timing_cache(data)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        report.warn(f"the timing cache is not one of {flavour}; it is left aside and a fresh one begun")
        fresh = config.create_timing_cache(b"")
        if fresh is not None:
            config.set_timing_cache(fresh, ignore_mismatch=False)


@contextlib.contextmanager
def _progress(
    flavour: Flavour, config: api.BuilderConfig, cancelled: threading.Event, report: Reporter
) -> Iterator[None]:
    """Tell how far the build inside is, or at least that it lives."""
    text = f"building with {flavour}"
    if not flavour.cancellable:
        with heartbeat(report, text):
            yield
        return
    watch = monitor(flavour.module, Phases(report, text), cancelled)
    config.progress_monitor = watch
    yield
    del watch  # TensorRT holds it by address only, so it had to outlive the build


def _refusal(flavour: Flavour, parsed: Parsed, recipe: Recipe) -> BuildError:
    reasons = parsed.messages.errors() or ["it gave no reason"]
    return BuildError(
        f"{flavour} built no plan:\n    " + "\n    ".join(reasons),
        allowed="a larger --workspace, or none" if recipe.workspace is not None else None,
        run="face3d-trt doctor",
    )
