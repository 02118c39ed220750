"""float32 ONNX → typed ONNX → plan and manifest."""

from __future__ import annotations

import hashlib
import os
import shlex
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import face3d_trt
from face3d_trt.engine.flavour import Flavour, find_flavour
from face3d_trt.engine.profile import Profile
from face3d_trt.engine.values import Built, Parsed, Recipe
from face3d_trt.engine.worker import run_cancellable
from face3d_trt.errors import BuildError, GraphError, PlanError, StorageError, UsageError
from face3d_trt.files import check_output, fingerprint, output_lock, sha256_file, write_beside, write_together
from face3d_trt.graph.info import load_graph, read_info
from face3d_trt.graph.precision import PrecisionOptions, record_path, typed_graph
from face3d_trt.names import DEFAULT_ONNX
from face3d_trt.records import Manifest, ModelInfo, Precision, ProfileRecord, TypedRecord, manifest_path
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

    onnx: Path = Path(DEFAULT_ONNX)
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

    Ctrl-C stops it and leaves no half-written file. One build of the same output runs at a time.

    Raises:
        UsageError: Options that do not go together, a bad profile (ProfileError), a foreign graph (GraphError), an
            unusable calibration set (CalibrationError).
        MissingError: No TensorRT or no ModelOpt here; or nothing can be written, or another build of the same output is
            running (StorageError).
        BuildError: TensorRT gave no plan, or one without a layer in the precision asked for.
    """
    begun = time.monotonic()
    graph, digest = load_graph(options.onnx)
    info = read_info(graph, str(options.onnx))
    del graph  # as large as the weights
    profiles = options.profiles or (Profile.default(info.input),)
    for profile in profiles:
        profile.check(info.input)
    flavour = find_flavour(report)
    recipe = Recipe(options.precision, profiles, options.workspace, flavour.choose_targets(options.targets))
    _check(options, flavour, report)
    cache = _read_cache(options)
    with output_lock(options.plan), output_lock(options.typed):
        record = typed_graph(options.onnx, options.typed, _precision_options(options, flavour), report)
        if record.source_sha256 != digest:
            raise GraphError(f"{options.onnx} was changed while it was being built", run=options.command)
        key = _key(record, flavour, recipe)
        if reused := _reusable(options, key, record, info, report):
            return reused
        parsed = flavour.parse(_typed_bytes(options, record), str(options.typed))
        if flavour.strongly_typed:
            prove(flavour.tally(parsed), options.precision, report)
        report.stage(
            f"building {options.plan} with {flavour}" + (f" for {', '.join(recipe.targets)}" if recipe.targets else "")
        )
        built = _build(flavour, parsed, recipe, cache, report)
        if not flavour.strongly_typed:
            prove(built.tally, options.precision, report)
        manifest = _manifest(
            options,
            flavour,
            recipe,
            parsed,
            built,
            _origin(options, record, info),
            key,
            time.monotonic() - begun,
        )
        _write(options, manifest, built, report)
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
    for path in (options.plan, manifest_path(options.plan), options.typed, record_path(options.typed)):
        check_output(path)


def _read_cache(options: BuildOptions) -> bytes | None:
    """The timing cache, empty for a new one; None where none is asked for. Also whether it can be written again."""
    path = options.timing_cache
    if path is None:
        return None
    check_output(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageError(
            f"cannot read the timing cache {path}: {error.strerror}",
            allowed="a file of an earlier build, or a new name",
            run=f"ls -l {path}",
        ) from error


def _typed_bytes(options: BuildOptions, record: TypedRecord) -> bytes:
    """The typed graph, provided that it is the one of the record."""
    data = options.typed.read_bytes()
    if hashlib.sha256(data).hexdigest() != record.sha256:
        raise GraphError(f"{options.typed} was changed while it was being built", run=options.command)
    return data


def _uses_faces(options: BuildOptions, flavour: Flavour) -> bool:
    return options.precision == "int8" or (options.precision == "fp16" and flavour.strongly_typed)


def _key(record: TypedRecord, flavour: Flavour, recipe: Recipe) -> str:
    gpu = flavour.gpu and (flavour.gpu.name, flavour.gpu.compute_capability)
    return fingerprint(BUILD_VERSION, record.sha256, flavour.name, flavour.version, gpu, recipe)


def _reusable(
    options: BuildOptions, key: str, record: TypedRecord, info: ModelInfo, report: Reporter
) -> Manifest | None:
    """The manifest of a plan that was built from the same content and has not been touched since.

    What the plan was built from may lie elsewhere by now, or be the same network saved in other bytes: the manifest
    then names what is there today.
    """
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
    current = manifest.model_copy(update=_origin(options, record, info))
    if current != manifest:
        current.write(path)
    return current


def _origin(options: BuildOptions, record: TypedRecord, info: ModelInfo) -> dict[str, Any]:
    """The part of a manifest that says where the plan came from."""
    return {
        "onnx": os.path.relpath(options.onnx.resolve(), options.plan.parent.resolve()),
        "onnx_sha256": record.source_sha256,
        "typed": options.typed.name,
        "typed_sha256": record.sha256,
        "calibration": record.calibration,
        "int8_macs": record.int8_macs,
        "model": info,
        "command": options.command,
    }


def _build(flavour: Flavour, parsed: Parsed, recipe: Recipe, cache: bytes | None, report: Reporter) -> Built:
    def work(cancelled: threading.Event) -> Built:
        return flavour.build(parsed, recipe, cache, cancelled=cancelled, report=report)

    return run_cancellable(work, patience_s=_PATIENCE_S if flavour.cancellable else 0)


def _manifest(
    options: BuildOptions,
    flavour: Flavour,
    recipe: Recipe,
    parsed: Parsed,
    built: Built,
    origin: dict[str, Any],
    key: str,
    seconds: float,
) -> Manifest:
    return Manifest(
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
        inspected=built.inspected.operations if built.inspected else None,
        workspace_bytes=options.workspace,
        plan_sha256=hashlib.sha256(built.plan).hexdigest(),
        fingerprint=key,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        version=face3d_trt.__version__,
        **origin,
    )


def _write(options: BuildOptions, manifest: Manifest, built: Built, report: Reporter) -> None:
    """Plan and manifest, then the timing cache, without which the plan is as good."""
    write_together([(options.plan, built.plan), (manifest_path(options.plan), manifest.to_json())])
    if options.timing_cache is not None and built.timing_cache is not None:
        try:
            with write_beside(options.timing_cache) as temporary:
                temporary.write_bytes(built.timing_cache)
        except StorageError as error:
            report.warn(f"{error.problem}. The plan is there; the next build measures again")
