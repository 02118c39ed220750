"""float32 ONNX → typed ONNX → plan and manifest."""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import face3d_trt
from face3d_trt.engine.flavour import Built, Flavour, Parsed, Recipe, find_flavour
from face3d_trt.engine.profile import Profile
from face3d_trt.engine.worker import run_cancellable
from face3d_trt.errors import BuildError, PlanError, UsageError
from face3d_trt.files import fingerprint, sha256_file, storage_errors, write_beside
from face3d_trt.graph.info import read_info
from face3d_trt.graph.precision import PrecisionOptions, typed_graph
from face3d_trt.records import Manifest, Precision, ProfileRecord, TypedRecord, manifest_path
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.graph.counts import Tally

BUILD_VERSION = 1  # raise it when the same typed graph and options give another plan
_PATIENCE_S = 60.0  # the longest that TensorRT was seen to work between two looks at the cancellation
_FEW = 0.5  # below this share of convolutions in the precision asked for, the build warns


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
        timing_cache: File that keeps measurements between builds, where the flavour has such.
        targets: Compute capabilities like "8.9", for TensorRT-RTX; none: Ampere and newer.
        output: The plan; None: `<onnx>.<precision>.plan` beside the graph.
    """

    onnx: Path = Path("engines/face3d_resnet50.onnx")
    precision: Precision = "fp16"
    calibration: Path | None = None
    method: Literal["output", "entropy", "max"] = "output"
    profiles: tuple[Profile, ...] = ()
    workspace: int | None = None
    timing_cache: Path | None = None
    targets: tuple[str, ...] = ()
    output: Path | None = None

    @property
    def plan(self) -> Path:
        """Where the plan goes."""
        return self.output or self.onnx.with_name(f"{self.onnx.stem}.{self.precision}.plan")

    @property
    def typed(self) -> Path:
        """Where the typed graph goes: beside the plan, with the precision in its name."""
        stem = self.plan.stem.removesuffix(f".{self.precision}")
        return self.plan.with_name(f"{stem}.{self.precision}.onnx")

    @property
    def command(self) -> str:
        """The command line that asks for the same."""
        words = ["face3d-trt", "build", "--onnx", str(self.onnx), f"--{self.precision}"]
        if self.calibration is not None:
            words += ["--calib", str(self.calibration)]
        if self.precision == "int8":
            words += ["--calib-method", self.method]
        for profile in self.profiles:
            words += ["--profile", str(profile)]
        if self.workspace is not None:
            words += ["--workspace", str(self.workspace)]
        if self.timing_cache is not None:
            words += ["--timing-cache", str(self.timing_cache)]
        for target in self.targets:
            words += ["--target", target]
        return shlex.join([*words, "-o", str(self.plan)])


def build_engine(options: BuildOptions, report: Reporter = SILENT) -> Manifest:
    """Make the typed graph, the plan and the manifest; what is there already for the same content is reused.

    Ctrl-C stops it and leaves no half-written file.

    Raises:
        UsageError: Options that do not go together, a bad profile (ProfileError), a foreign graph (GraphError), an
            unusable calibration set (CalibrationError).
        MissingError: No TensorRT or no ModelOpt here; or nothing can be written (StorageError).
        BuildError: TensorRT gave no plan, or one without a layer in the precision asked for.
    """
    begun = time.monotonic()
    info = read_info(options.onnx)
    profiles = options.profiles or (Profile.default(info.input),)
    for profile in profiles:
        profile.check(info.input)
    flavour = find_flavour()
    recipe = Recipe(options.precision, profiles, options.workspace, flavour.choose_targets(options.targets))
    _check(options, flavour, report)
    record = typed_graph(options.onnx, options.typed, _precision_options(options, flavour), report)
    key = _key(record, flavour, recipe)
    if reused := _reusable(options, key, report):
        return reused

    parsed = flavour.parse(options.typed)
    if flavour.strongly_typed:
        prove(flavour.tally(parsed), options.precision, report)
    report.stage(
        f"building {options.plan} with {flavour}" + (f" for {', '.join(recipe.targets)}" if recipe.targets else "")
    )
    built = _build(flavour, parsed, recipe, options, report)
    if not flavour.strongly_typed:
        prove(built.tally, options.precision, report)
    manifest = Manifest(
        flavour=flavour.name,
        flavour_version=flavour.version,
        gpu=flavour.gpu,
        targets=recipe.targets,
        profiles=tuple(ProfileRecord(min=each.min, opt=each.opt, max=each.max) for each in recipe.profiles),
        inputs=parsed.inputs,
        outputs=parsed.outputs,
        precision=options.precision,
        layers=built.tally.operations,
        convolutions=built.tally.convolutions,
        int8_macs=record.int8_macs,
        workspace_bytes=options.workspace,
        onnx=_relative(options.onnx, options),
        onnx_sha256=record.source_sha256,
        typed=options.typed.name,
        typed_sha256=record.sha256,
        calibration=record.calibration,
        plan_sha256=hashlib.sha256(built.plan).hexdigest(),
        fingerprint=key,
        model=info,
        command=options.command,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - begun, 3),
        version=face3d_trt.__version__,
    )
    _write(options, manifest, built)
    return manifest


def prove(tally: Tally, precision: Precision, report: Reporter = SILENT) -> None:
    """Hold what was found against what was asked for.

    Raises:
        BuildError: Nothing computes in `precision`.
    """
    if tally.found(precision) == 0:
        raise BuildError(
            f"asked for {precision}, and the graph has none of it: {tally.share(precision)}",
            allowed=f"at least one convolution in {precision}",
            run="face3d-trt build --fp16" if precision == "int8" else "face3d-trt build --fp32",
        )
    counts = tally.convolutions or tally.operations
    if tally.found(precision) < _FEW * sum(counts.values()):
        report.warn(f"only {tally.share(precision)}; the rest: {counts}")


def _precision_options(options: BuildOptions, flavour: Flavour) -> PrecisionOptions:
    return PrecisionOptions(
        options.precision, options.calibration, options.method, flavour.strongly_typed, flavour.opset
    )


def _check(options: BuildOptions, flavour: Flavour, report: Reporter) -> None:
    """What would fail after minutes of work, asked beforehand."""
    if options.plan.suffix in ("", ".onnx", ".json"):
        raise UsageError(
            f"the output {options.plan} is not a plan's name", allowed="NAME.plan", run="face3d-trt build -o NAME.plan"
        )
    if options.precision == "int8" and options.calibration is None:
        raise UsageError(
            "int8 needs pictures of faces to calibrate on",
            allowed="a folder of aligned crops or photos",
            run="face3d-trt build --int8 --calib calibration/",
        )
    if options.timing_cache is not None and not flavour.has_timing_cache:
        raise UsageError(
            f"--timing-cache {options.timing_cache}: {flavour} has no timing cache; it measures nothing while it "
            "builds and compiles its kernels on the machine that runs the plan",
            allowed="no --timing-cache here",
            run=replace(options, timing_cache=None).command,
        )
    if options.calibration is not None and not _uses_faces(options, flavour):
        report.warn(f"{options.precision} needs no pictures here: --calib {options.calibration} is left aside")
    with storage_errors(options.plan):
        options.plan.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.plan.parent):
            pass


def _uses_faces(options: BuildOptions, flavour: Flavour) -> bool:
    return options.precision == "int8" or (options.precision == "fp16" and flavour.strongly_typed)


def _key(record: TypedRecord, flavour: Flavour, recipe: Recipe) -> str:
    gpu = flavour.gpu and (flavour.gpu.name, flavour.gpu.compute_capability)
    return fingerprint(BUILD_VERSION, record.sha256, flavour.name, flavour.version, gpu, recipe)


def _reusable(options: BuildOptions, key: str, report: Reporter) -> Manifest | None:
    """The manifest of a plan that was built from the same content and has not been touched since."""
    path = manifest_path(options.plan)
    if not options.plan.exists() or not path.exists():
        return None
    try:
        manifest = Manifest.read(path)
    except PlanError:
        report.warn(f"{path} cannot be read; {options.plan.name} is built again")
        return None
    if manifest.plan_sha256 != sha256_file(options.plan):
        report.warn(f"{options.plan} was changed since it was built; it is built again")
        return None
    if manifest.fingerprint != key:
        return None
    report.stage(f"reused   {options.plan} (same typed graph, profiles and TensorRT)")
    moved = manifest.model_copy(update={"onnx": _relative(options.onnx, options), "typed": options.typed.name})
    if moved != manifest:
        moved.write(path)
    return moved


def _build(flavour: Flavour, parsed: Parsed, recipe: Recipe, options: BuildOptions, report: Reporter) -> Built:
    cache = None
    if options.timing_cache is not None:
        cache = options.timing_cache.read_bytes() if options.timing_cache.exists() else b""

    def work(cancelled: threading.Event) -> Built:
        return flavour.build(parsed, recipe, cache, cancelled=cancelled, report=report)

    return run_cancellable(work, patience_s=_PATIENCE_S if flavour.cancellable else 0)


def _write(options: BuildOptions, manifest: Manifest, built: Built) -> None:
    """Plan and manifest: both or neither."""
    with write_beside(manifest_path(options.plan)) as beside, write_beside(options.plan) as temporary:
        temporary.write_bytes(built.plan)
        manifest.write(beside)
    if options.timing_cache is not None and built.timing_cache is not None:
        with write_beside(options.timing_cache) as temporary:
            temporary.write_bytes(built.timing_cache)


def _relative(path: Path, options: BuildOptions) -> str:
    return os.path.relpath(path.resolve(), options.plan.parent.resolve())
