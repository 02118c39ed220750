"""What to build, where it goes, and what is wrong with it before any work."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from face3d_trt.engine.flavour import MARKS
from face3d_trt.engine.timing import read_timings
from face3d_trt.engine.values import Recipe
from face3d_trt.errors import UsageError
from face3d_trt.files import check_output
from face3d_trt.graph.precision import PrecisionOptions, record_path
from face3d_trt.names import DEFAULT_ONNX
from face3d_trt.records import Precision, manifest_path, plan_name

if TYPE_CHECKING:
    from face3d_trt.engine.flavour import Flavour, Takes
    from face3d_trt.engine.profile import Profile
    from face3d_trt.report import Reporter

_MARKS = tuple(f".{mark}" for mark in MARKS.values())
LEVELS = range(6)  # TensorRT's builder_optimization_level


@dataclass(frozen=True)
class BuildOptions:
    """What to build.

    Args:
        onnx: The float32 graph of `face3d-trt export`.
        precision: "fp32", "fp16" or "int8".
        calibration: Folder of faces; "int8" needs it, "fp16" sees activations' ranges on it.
        method: Calibration method of "int8".
        profiles: Input shapes; none: batch 1 to 32, tuned for 8, at 224 × 224.
        workspace: Limit of the builder's scratch memory in bytes; None leaves it to TensorRT.
        timing_cache: File that keeps measurements between builds, where the flavour has such; "none" for none; None for
            the one in the user's cache folder.
        targets: Compute capabilities like "8.9", for TensorRT-RTX; none: Ampere and newer.
        output: The plan; None: `<onnx>.<precision>.plan` beside the graph.
        optimization_level: 0 to 5: how long TensorRT looks for faster kernels; None leaves it to TensorRT.
        hardware_compat: A plan for every GPU of Ampere and newer, slower than one for this GPU.
        version_compat: A plan for later TensorRTs too, slower and with code inside.
        from_typed: A typed graph with its record, to build from these alone: `onnx`, `precision`, `calibration` and
            `method` are then what the record says.
        keep: File with nodes that stay in higher precision, as `bisect` writes it.
    """

    onnx: Path = Path(DEFAULT_ONNX)
    precision: Precision = "fp16"
    calibration: Path | None = None
    method: Literal["output", "entropy", "max"] = "output"
    profiles: tuple[Profile, ...] = ()
    workspace: int | None = None
    timing_cache: Path | Literal["none"] | None = None
    targets: tuple[str, ...] = ()
    output: Path | None = None
    optimization_level: int | None = None
    hardware_compat: bool = False
    version_compat: bool = False
    from_typed: Path | None = None
    keep: Path | None = None

    @property
    def plan(self) -> Path:
        """Where the plan goes."""
        if self.output is not None:
            return self.output
        if self.from_typed is not None:
            return self.from_typed.with_suffix(".plan")
        return self.onnx.with_name(f"{self.onnx.stem}.{self.precision}.plan")

    @property
    def typed(self) -> Path:
        """Where the typed graph lies or goes: beside the plan, with the precision in its name."""
        if self.from_typed is not None:
            return self.from_typed
        stem, dot, mark = self.plan.stem.rpartition(f".{self.precision}")
        if not dot or (mark and mark not in _MARKS):
            stem, mark = self.plan.stem, ""
        return self.plan.with_name(f"{stem}.{self.precision}{mark}.onnx")

    @property
    def command(self) -> str:
        """The command line that asks for the same."""
        words = ["face3d-trt", "build", *(self._typed_words() if self.from_typed else self._graph_words())]
        for profile in self.profiles:
            words += ["--profile", str(profile)]
        if self.workspace is not None:
            words += ["--workspace", str(self.workspace)]
        if self.timing_cache is not None:
            words += ["--timing-cache", str(self.timing_cache)]
        if self.optimization_level is not None:
            words += ["--optimization-level", str(self.optimization_level)]
        words += ["--hardware-compat"] * self.hardware_compat + ["--version-compat"] * self.version_compat
        for target in self.targets:
            words += ["--target", target]
        return shlex.join([*words, "-o", str(self.plan)])

    def typed_command(self, generation: str) -> str:
        """The command line that makes the typed graph alone, for TensorRT `generation`."""
        words = ["face3d-trt", "build", *self._graph_words(), "--typed-only", "--for", generation]
        return shlex.join([*words, "-o", str(self.plan)])

    def recipe(self, flavour: Flavour, profiles: tuple[Profile, ...]) -> Recipe:
        """What `flavour` is to build with.

        Raises:
            UsageError: It does not build for one of the targets, or has not got one of the options.
        """
        if self.optimization_level is not None and self.optimization_level not in LEVELS:
            raise UsageError(
                f"--optimization-level {self.optimization_level}",
                allowed="0 (soonest) to 5 (fastest plan); 3 is TensorRT's default",
                run=replace(self, optimization_level=None).command,
            )
        recipe = Recipe(
            self.precision,
            profiles,
            self.workspace,
            flavour.choose_targets(self.targets),
            self.optimization_level,
            self.hardware_compat,
            self.version_compat,
        )
        flavour.check_options(recipe)
        return recipe

    def precision_options(self, takes: Takes) -> PrecisionOptions:
        """Which typed graph to make."""
        return PrecisionOptions(
            self.precision, self.calibration, self.method, takes.strongly_typed, takes.opset, self.keep
        )

    def _typed_words(self) -> list[str]:
        return ["--typed", str(self.from_typed)]

    def _graph_words(self) -> list[str]:
        words = ["--onnx", str(self.onnx), f"--{self.precision}"]
        if self.calibration is not None:
            words += ["--calib", str(self.calibration)]
        if self.precision == "int8":
            words += ["--calib-method", self.method]
        if self.keep is not None:
            words += ["--keep", str(self.keep)]
        return words


def check_plan(options: BuildOptions, flavour: Flavour) -> None:
    """What would fail after minutes of work, asked beforehand: about the plan."""
    _check_name(options.plan)
    if isinstance(options.timing_cache, Path) and not flavour.has_timing_cache:
        raise UsageError(
            f"--timing-cache {options.timing_cache}: {flavour} has no timing cache; it measures nothing while it "
            "builds and compiles its kernels on the machine that runs the plan",
            allowed="no --timing-cache here",
            run=replace(options, timing_cache=None).command,
        )
    for path in (options.plan, manifest_path(options.plan)):
        check_output(path)
    if isinstance(options.timing_cache, Path):
        read_timings(options.timing_cache)


def _check_name(plan: Path) -> None:
    """`compare` without --plan, and the manifests' names, go by the suffix."""
    if plan.suffix != ".plan":
        raise UsageError(
            f"the output {plan} is not a plan's name",
            allowed="NAME.plan",
            run=f"the same command with -o {shlex.quote(str(plan_name(plan)))}",
        )


def check_typed(options: BuildOptions, takes: Takes, report: Reporter) -> None:
    """Likewise about the typed graph."""
    _check_name(options.plan)
    if options.precision == "int8" and options.calibration is None:
        raise UsageError(
            "int8 needs pictures of faces to calibrate on",
            allowed="a folder of aligned crops or photos",
            run="face3d-trt build --int8 --calib calibration/",
        )
    if options.keep is not None and options.precision == "fp32":
        raise UsageError(
            f"--keep {options.keep} means nothing with --fp32: every node is in float32",
            allowed="--keep FILE with --fp16 or --int8",
            run=f"face3d-trt build --fp16 --keep {options.keep}",
        )
    uses_faces = options.precision == "int8" or (options.precision == "fp16" and takes.strongly_typed)
    if options.calibration is not None and not uses_faces:
        report.warn(f"{options.precision} needs no pictures here: --calib {options.calibration} is left aside")
    for path in (options.typed, record_path(options.typed)):
        check_output(path)
