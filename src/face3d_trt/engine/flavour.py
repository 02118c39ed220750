"""Which TensorRT this machine has, and every difference between versions and flavours.

The one file that imports `tensorrt` or `tensorrt_rtx`; parsing.py, building.py, loaded.py and callbacks.py are handed
the module, whose API api.py declares. Nothing asks for a version: it asks a Flavour, chosen once, what it can do.

| | TensorRT 8.6 | TensorRT 10, 11 | TensorRT-RTX |
|---|---|---|---|
| precision comes from | flags FP16, INT8 | the graph's types | the graph's types |
| graph | float32 or float32 Q/DQ, opset 17 | fp16 or fp16 Q/DQ | fp16 or fp16 Q/DQ |
| builds for | the GPU that is there | the GPU that is there | any of `targets`, without a GPU |
| timing cache | yes | yes | no |
| a build can be cancelled | no | yes | yes |
| optimization level, other GPUs and versions | yes | yes | no |
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from face3d_trt.engine.api import has
from face3d_trt.engine.building import build, merge_timings
from face3d_trt.engine.compatible import AMPERE, numbers, remark, why_not
from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.engine.loaded import LoadedPlan, deserialize, load_plan
from face3d_trt.engine.network import network_operations
from face3d_trt.engine.parsing import parse
from face3d_trt.errors import MissingError, UsageError
from face3d_trt.graph.counts import Tally, tally
from face3d_trt.optional import import_package, install_command
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.engine import api
    from face3d_trt.engine.values import Built, Parsed, Recipe
    from face3d_trt.records import Gpu, Manifest


@dataclass(frozen=True)
class Takes:
    """The kind of typed graph that a TensorRT is given.

    Args:
        strongly_typed: The graph's types decide the precision; otherwise flags do, over a float32 graph.
        opset: ONNX operator set, at least.
    """

    strongly_typed: bool
    opset: int


FLAGS = Takes(strongly_typed=False, opset=17)  # the newest that 8.6's parser takes
TYPES = Takes(strongly_typed=True, opset=19)  # the first whose Q/DQ takes fp16
# major versions that load an earlier one's version-compatible plans: TensorRT's guide, "Engine Compatibility"
_NEXT = {8: (9, 10), 9: (10,), 10: (11,)}
GENERATIONS = {"8.6": FLAGS, "10": TYPES, "11": TYPES, "rtx": TYPES}  # as `build --for` names them
MARKS = {FLAGS: "trt86", TYPES: "trt10"}  # in the names of graphs that are not for the TensorRT that builds here


@dataclass(frozen=True)
class Flavour:
    """One TensorRT, described by what it can do.

    Args:
        name: "tensorrt" or "tensorrt_rtx".
        version: Of the package.
        has_timing_cache: Builds can reuse measurements of earlier ones.
        cancellable: A running build can be stopped.
        targets: Compute capabilities it builds for without their GPU; empty: for the GPU of this machine only.
        default_targets: Those of them that are built for when none are named.
        takes: The kind of graph that it is given.
        options: Those of `build` that not every TensorRT has.
        gpu: The GPU a plan is built on; None when it is built without one.
    """

    name: Literal["tensorrt", "tensorrt_rtx"]
    version: str
    has_timing_cache: bool
    cancellable: bool
    targets: tuple[str, ...]
    default_targets: tuple[str, ...]
    takes: Takes
    options: frozenset[str]
    gpu: Gpu | None
    module: api.Module = field(repr=False, compare=False)

    @property
    def strongly_typed(self) -> bool:
        """The graph's types decide the precision; otherwise flags do, over a float32 graph."""
        return self.takes.strongly_typed

    @property
    def opset(self) -> int:
        """ONNX operator set that the graph is given in, at least."""
        return self.takes.opset

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

    def check_options(self, recipe: Recipe) -> None:
        """Refuse what this TensorRT has no use for.

        Raises:
            UsageError: It has not got an option of the recipe, or this GPU is too old for it.
        """
        asked = {"--hardware-compat": recipe.hardware_compat, "--version-compat": recipe.version_compat}
        asked["--optimization-level"] = recipe.optimization_level is not None
        for option, given in asked.items():
            if given and option not in self.options:
                raise UsageError(
                    f"{option}: {self} has no such thing; {_WHY_NOT_RTX[option]}",
                    allowed=f"no {option} here",
                    run="face3d-trt build --target 8.6 --target 8.9" if option == "--hardware-compat" else None,
                )
        if recipe.hardware_compat and self.gpu and numbers(self.gpu.compute_capability) < AMPERE:
            raise UsageError(
                f"--hardware-compat: {self.gpu.name} has compute capability {self.gpu.compute_capability}",
                allowed="a build on Ampere (8.0) or newer; such a plan runs on those alone",
            )

    def loads_compatible(self, version: str) -> bool:
        """Whether this TensorRT loads version-compatible plans that `version` built."""
        here, built = numbers(self.version), numbers(version)
        if not here or not built:
            return False
        return here >= built if here[0] == built[0] else here[0] in _NEXT.get(built[0], ())

    def can_run(self, manifest: Manifest, gpu: Gpu | None = None) -> str | None:
        """Why this TensorRT cannot run a plan on this machine's GPU; None where it can.

        TensorRT-RTX would compile the plan's kernels for the GPU first; that is not done here.

        Args:
            manifest: Of the plan.
            gpu: The GPU that is meant; the first one, if none is given.
        """
        return why_not(self, manifest, gpu or self.gpu)

    def remark(self, manifest: Manifest, gpu: Gpu | None = None) -> str | None:
        """What a user should know about a plan that `can_run` lets through; None where there is nothing."""
        return remark(manifest, gpu or self.gpu)

    def parse(self, onnx: bytes, name: str) -> Parsed:
        """Read the bytes of an ONNX file into a network.

        Args:
            onnx: One file, weights included.
            name: What messages call it.

        Raises:
            GraphError: TensorRT's parser does not understand it; the message names the nodes.
        """
        return parse(self.module, str(self), onnx, name)

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
        return build(self, parsed, recipe, timing_cache, cancelled or threading.Event(), report)

    def merge_timings(self, parsed: Parsed, ours: bytes, theirs: bytes) -> bytes:
        """Timing cache `ours` with what `theirs` has beyond it; `ours` alone if that is not one for this GPU."""
        return merge_timings(self, parsed, ours, theirs)

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

    def runners(self, plan: bytes, *, host_code: bool = False) -> Callable[[int], Any]:
        """Polygraphy runners of a plan: from the index of an optimization profile to a runner named `tensorrt`.

        Raises:
            PlanError: This TensorRT cannot read the plan.
        """
        from polygraphy.backend.trt import TrtRunner

        runtime, engine = deserialize(self.module, str(self), plan, "the plan", host_code=host_code)

        def runner(profile: int) -> Any:
            _ = runtime  # it has to outlive the engine
            return TrtRunner(engine, name="tensorrt", optimization_profile=profile)

        return runner


_WHY_NOT_RTX = {
    "--hardware-compat": "its plans run on every target that they are built for",
    "--version-compat": "its plans belong to the version that built them",
    "--optimization-level": "it measures nothing while it builds",
}


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
        return import_package(name)
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


def _tensorrt(trt: api.Module, gpu: Gpu) -> Flavour:
    return Flavour(
        name="tensorrt",
        version=trt.__version__,
        has_timing_cache=True,
        cancellable=has(trt, "IProgressMonitor"),
        targets=(),
        default_targets=(),
        takes=TYPES if has(trt, "NetworkDefinitionCreationFlag.STRONGLY_TYPED") else FLAGS,
        options=frozenset({"--optimization-level", "--hardware-compat", "--version-compat"}),
        gpu=gpu,
        module=trt,
    )


def _rtx(trt: api.Module) -> Flavour:
    names = [name for name in dir(trt.ComputeCapability) if name.startswith("SM") and name[2:].isdigit()]
    targets = sorted((f"{name[2:-1]}.{name[-1]}" for name in names), key=lambda text: tuple(map(int, text.split("."))))
    return Flavour(
        name="tensorrt_rtx",
        version=trt.__version__,
        has_timing_cache=False,
        cancellable=True,
        targets=tuple(targets),
        default_targets=tuple(target for target in targets if int(target.split(".")[0]) >= 8),  # Ampere and newer
        takes=TYPES,
        options=frozenset(),
        gpu=None,
        module=trt,
    )
