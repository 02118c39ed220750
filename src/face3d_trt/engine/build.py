"""float32 ONNX, or typed ONNX → plan and manifest."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

import face3d_trt
from face3d_trt.engine.flavour import Flavour, find_flavour
from face3d_trt.engine.layer_times import EngineLayers, layers_of
from face3d_trt.engine.options import BuildOptions as BuildOptions
from face3d_trt.engine.options import check_plan, check_typed
from face3d_trt.engine.profile import Profile
from face3d_trt.engine.timing import open_timings
from face3d_trt.engine.typed import Source, completed, final_files, forget_next, model_of, source_of, typed_bytes
from face3d_trt.engine.worker import run_cancellable
from face3d_trt.errors import BuildError, PlanError
from face3d_trt.files import fingerprint, output_lock, sha256_file, write_together
from face3d_trt.graph.precision import float32_path
from face3d_trt.records import GateRecord, Manifest, Precision, ProfileRecord, TypedRecord, is_sealed, manifest_path
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.engine.values import Built, Parsed, Recipe
    from face3d_trt.graph.counts import Tally

BUILD_VERSION = 2  # raise it when the same typed graph and options give another plan
_PATIENCE_S = 60.0  # the longest that TensorRT was seen to work between two looks at the cancellation
_FEW = 0.5  # below this share of convolutions in the precision asked for, the build warns


class Gate(Protocol):
    """Judges a plan before it gets its name."""

    def __call__(self, options: BuildOptions, manifest: Manifest, plan: bytes, typed: Path) -> GateRecord:
        """What is said of `plan`, which will stand under `options.plan` and was built from `typed`."""


@dataclass(frozen=True)
class _Job:
    """One build."""

    options: BuildOptions
    flavour: Flavour
    recipe: Recipe
    key: str  # fingerprint of everything that goes into the plan
    source: Source
    begun: float
    gate: Gate | None = None

    @property
    def origin(self) -> dict[str, Any]:
        """The part of a manifest that says where the plan came from."""
        record = self.source.record
        return {
            "onnx": self.source.onnx_from(self.options.plan),
            "onnx_sha256": record.source_sha256,
            "typed": os.path.relpath(self.options.typed.resolve(), self.options.plan.parent.resolve()),
            "typed_sha256": record.sha256,
            "plain_sha256": record.plain_sha256,
            "kept": record.kept,
            "calibration": record.calibration,
            "int8_macs": record.int8_macs,
            "model": self.source.info,
            "command": self.options.command,
        }


def build_engine(options: BuildOptions, report: Reporter = SILENT, gate: Gate | None = None) -> Manifest:
    """Make the typed graph, the plan and the manifest; what is there already for the same content is reused.

    Ctrl-C stops it and leaves no half-written file. One build of the same output runs at a time. With
    `options.from_typed` neither onnx nor ModelOpt is needed. A plan that `gate` fails does not get its name.

    Raises:
        UsageError: Options that do not go together, a bad profile (ProfileError), a foreign graph (GraphError), an
            unusable calibration set (CalibrationError).
        MissingError: No TensorRT or no ModelOpt here; or nothing can be written, or another build of the same output is
            running (StorageError).
        BuildError: TensorRT gave no plan, or one without a layer in the precision asked for, or one that fails `gate`.
    """
    begun = time.monotonic()
    info, digest = model_of(options)
    profiles = options.profiles or (Profile.default(info.input),)
    for profile in profiles:
        profile.check(info.input)
    flavour = find_flavour(report)
    options = completed(options, flavour)
    recipe = options.recipe(flavour, profiles)
    check_plan(options, flavour)
    if options.from_typed is None:
        check_typed(options, flavour.takes, report)
    with output_lock(options.plan), source_of(options, flavour, info, digest, report) as source:
        recipe = replace(recipe, pinned=_pinned(source.record))
        job = _Job(options, flavour, recipe, _key(source.record, flavour, recipe), source, begun, gate)
        if reused := _reusable(job, report):
            return _judged_again(job, reused)
        return _make(job, report)


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


def _make(job: _Job, report: Reporter) -> Manifest:
    options, flavour, recipe = job.options, job.flavour, job.recipe
    timings = open_timings(options.timing_cache, flavour, report)
    typed = typed_bytes(options, job.source)
    parsed = flavour.parse(typed, str(job.source.typed))
    if flavour.strongly_typed:
        prove(flavour.tally(parsed), options.precision, report)
    report.stage(
        f"building {options.plan} with {flavour}" + (f" for {', '.join(recipe.targets)}" if recipe.targets else "")
    )
    built = _build(flavour, parsed, recipe, timings.data, report)
    if not flavour.strongly_typed:
        prove(built.tally, options.precision, report)
    manifest = _manifest(job, parsed, built, layers_of(flavour, built, recipe, report))
    if job.gate is not None:
        said = job.gate(options, manifest, built.plan, job.source.typed)
        if said.passed is False:
            former = "; the former plan and its files are as they were" if job.source.typed != options.typed else ""
            raise _failed(job, said, f"it did not get its name{former}")
        manifest = manifest.model_copy(update={"gate": said})
    files = [(options.plan, built.plan), (manifest_path(options.plan), manifest.to_json())]
    write_together([*final_files(options, job.source, typed), *files])
    forget_next(options)
    timings.keep(built.timing_cache, lambda ours, theirs: flavour.merge_timings(parsed, ours, theirs), report)
    return manifest


def _judged_again(job: _Job, manifest: Manifest) -> Manifest:
    """The manifest of a reused plan, with the gate's word where it has none yet."""
    if job.gate is None or (manifest.gate is not None and manifest.gate.passed is not None):
        return manifest
    said = job.gate(job.options, manifest, job.options.plan.read_bytes(), job.source.typed)
    if said.passed is False:
        raise _failed(job, said, "it stands there from a build that did not ask, and was left there")
    judged = manifest.model_copy(update={"gate": said})
    if judged != manifest:
        judged.write(manifest_path(job.options.plan))
    return judged


def _failed(job: _Job, said: GateRecord, outcome: str) -> BuildError:
    options = job.options
    onnx = options.onnx if options.from_typed is None else float32_path(options.from_typed)
    return BuildError(
        f"{options.plan} is not good enough on {said.pictures} pictures ({said.origin}), and {outcome}: {said.reason}\n"
        f"  nearest to or beyond its limits: {said.worst}",
        allowed="what the limits of its precision say (docs/accuracy.md), or --no-gate",
        run=f"face3d-trt bisect --typed {job.source.typed} --onnx {onnx}"
        + ("    # or: build --int8 --until-passes" if options.precision == "int8" else ""),
    )


def _pinned(record: TypedRecord) -> tuple[str, ...]:
    """Nodes that the builder has to be told of; in an int8 graph the lack of Q/DQ pairs tells it."""
    by_flag = record.precision == "fp16" and not record.strongly_typed
    return tuple(node.node for node in record.kept) if by_flag else ()


def _key(record: TypedRecord, flavour: Flavour, recipe: Recipe) -> str:
    gpu = flavour.gpu and (flavour.gpu.name, flavour.gpu.compute_capability)
    return fingerprint(BUILD_VERSION, record.sha256, flavour.name, flavour.version, gpu, recipe)


def _reusable(job: _Job, report: Reporter) -> Manifest | None:
    """The manifest of a plan that was built from the same content and has not been touched since.

    What the plan was built from may lie elsewhere by now, or be the same network saved in other bytes: the manifest
    then names what is there today.
    """
    plan = job.options.plan
    path = manifest_path(plan)
    if not plan.exists() or not path.exists():
        return None
    try:
        manifest = Manifest.read(path)
    except PlanError:
        report.warn(f"{path} cannot be read; {plan.name} is built again")
        return None
    if manifest.plan_sha256 != sha256_file(plan):
        report.warn(f"{plan} was changed since it was built; it is built again")
        return None
    if manifest.fingerprint != job.key:
        return None
    report.stage(f"reused   {plan} (same typed graph, profiles and TensorRT)")
    current = manifest.model_copy(update=job.origin)
    if current != manifest or not is_sealed(path):
        current.write(path)
    return current


def _build(flavour: Flavour, parsed: Parsed, recipe: Recipe, cache: bytes | None, report: Reporter) -> Built:
    def work(cancelled: threading.Event) -> Built:
        return flavour.build(parsed, recipe, cache, cancelled=cancelled, report=report)

    return run_cancellable(work, patience_s=_PATIENCE_S if flavour.cancellable else 0)


def _manifest(job: _Job, parsed: Parsed, built: Built, engine: EngineLayers) -> Manifest:
    flavour, recipe = job.flavour, job.recipe
    return Manifest(
        flavour=flavour.name,
        flavour_version=flavour.version,
        gpu=flavour.gpu,
        targets=recipe.targets,
        profiles=tuple(ProfileRecord(min=each.min, opt=each.opt, max=each.max) for each in recipe.profiles),
        inputs=parsed.inputs,
        outputs=parsed.outputs,
        precision=recipe.precision,
        layers=built.tally.operations,
        convolutions=built.tally.convolutions,
        inspected=built.inspected.operations if built.inspected else None,
        engine_layers=engine.layers,
        timed_at=engine.timed_at,
        optimization_level=recipe.optimization_level,
        hardware_compat=recipe.hardware_compat,
        version_compat=recipe.version_compat,
        workspace_bytes=recipe.workspace,
        plan_sha256=hashlib.sha256(built.plan).hexdigest(),
        plan_bytes=len(built.plan),
        fingerprint=job.key,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - job.begun, 3),
        version=face3d_trt.__version__,
        **job.origin,
    )
