"""`face3d-trt compare`: is what was built the model that it was built from?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt import __version__
from face3d_trt.errors import PlanError
from face3d_trt.files import sha256_file
from face3d_trt.optional import require
from face3d_trt.parity.limits import Limits, load_limits
from face3d_trt.parity.verdict import Check, Failure, Row, Verdict
from face3d_trt.records import Manifest, TypedRecord, manifest_path
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from face3d_trt.model.load import FaceModel
    from face3d_trt.parity.batches import Batch
    from face3d_trt.parity.memory import HostMemory
    from face3d_trt.parity.runners import Candidate
    from face3d_trt.parity.session import Session
    from face3d_trt.parity.truth import Reference
    from face3d_trt.records import Precision

ENGINES = Path("engines")
PICTURES = 32  # more cost minutes on two cores at full width and change no figure by much
BUILD = "face3d-trt build"
PLAN = "plan"  # name of the check of its bytes


@dataclass(frozen=True)
class CompareOptions:
    """What to compare.

    Attributes:
        plan: A plan with its manifest beside it.
        images: A photo, an aligned crop or a folder of them; None: the package's sample faces, which calibrate nothing.
        model: Directory or ModelScope id of the reference; None: the one in the manifest, looked for from here and from
            the plan's folder upwards.
        limits: A file like `limits.json`; None: the package's.
        limit: The most pictures that are taken of a folder, the first by name.
    """

    plan: Path
    images: Path | None = None
    model: str | None = None
    limits: Path | None = None
    limit: int = PICTURES


def find_plans(folder: Path = ENGINES, report: Reporter = SILENT) -> list[Path]:
    """Every plan in `folder` that has a manifest, by name.

    Raises:
        PlanError: There is none.
    """
    plans = sorted(folder.glob("*.plan"))
    known = [plan for plan in plans if manifest_path(plan).is_file()]
    for plan in plans:
        if plan not in known:
            report.warn(f"{plan} has no manifest ({manifest_path(plan).name}) and is left out")
    if not known:
        raise PlanError(
            f"there is no plan with a manifest in {folder}", allowed="<name>.plan beside <name>.plan.json", run=BUILD
        )
    return known


def compare(options: CompareOptions, report: Reporter = SILENT) -> Verdict:
    """Run float32 PyTorch, both ONNX graphs and, where a GPU can, the plan; hold the differences against the limits.

    A file that was changed after the build is a failure of its own, and the comparison of the graphs still runs; a plan
    that was changed is not loaded.

    Raises:
        PlanError: The plan, its manifest or one of the ONNX files is missing or damaged.
        GraphError: An ONNX file cannot be loaded.
        ModelError: The reference cannot be loaded, or is not where it was.
        UsageError: The limits file is malformed.
        ImageError, FaceError, CalibrationError: No picture can be used.
        MissingError: A package or the model is missing here.
    """
    return next(compare_each([options], report))


def compare_each(every: Iterable[CompareOptions], report: Reporter = SILENT) -> Iterator[Verdict]:
    """`compare` for several plans; what they share (model, pictures, the truth about them) is computed once."""
    for module, extra in (("torch", "export"), ("polygraphy", "export"), ("onnx", "export"), ("onnxruntime", "cpu")):
        require(module, extra, "comparing with float32 PyTorch")
    from face3d_trt.parity.session import Session

    session = Session(report)
    for options in every:
        yield _compare(options, session, report)


def _compare(options: CompareOptions, session: Session, report: Reporter) -> Verdict:
    from face3d_trt.parity.batches import batches
    from face3d_trt.parity.pictures import calibration_note
    from face3d_trt.parity.places import exported_model

    limits = load_limits(options.limits)
    manifest = Manifest.read(manifest_path(options.plan))
    files = _files(options.plan, manifest)
    sizes = batches(manifest.profiles, manifest.model.input)
    report.stage(f"plan       {options.plan}")
    source = options.model or exported_model(manifest, options.plan)
    model = session.model(source, morphable=manifest.model.outputs == "mesh")
    checks = _integrity(files, manifest, model)
    chosen = session.pictures(options.images, manifest, options.limit)
    candidates, notes = _candidates(files, manifest, checks)
    reference = session.reference(model, manifest, chosen)
    rows, failures, remarks = _measured(manifest, reference, candidates, sizes, limits, report)
    return Verdict(
        plan=str(options.plan),
        precision=manifest.precision,
        model=model.source,
        weights=manifest.model.weights,
        engine_ran=any(candidate.name == "tensorrt" for candidate in candidates),
        candidates={candidate.name: candidate.title for candidate in candidates},
        batches=_grouped(sizes),
        pictures=chosen.pictures.names,
        skipped=chosen.skipped,
        origin=chosen.origin,
        checks=checks,
        rows=rows,
        failures=(*(Failure("integrity", check.text) for check in checks if not check.passed), *failures),
        notes=(*notes, *chosen.notes, *calibration_note(chosen, options.images, manifest, options.plan), *remarks),
        version=__version__,
    )


def _grouped(sizes: Sequence[Batch]) -> tuple[str, ...]:
    """`1, 8, 31, 32 at 224x224 (profile 0)`."""
    groups: dict[str, list[str]] = {}
    for size in sizes:
        groups.setdefault(f"at {size.height}x{size.width} (profile {size.profile})", []).append(str(size.size))
    return tuple(f"{', '.join(numbers)} {place}" for place, numbers in groups.items())


@dataclass(frozen=True)
class _Files:
    plan: Path
    typed: Path
    onnx: Path


def _files(plan: Path, manifest: Manifest) -> _Files:
    files = _Files(plan, plan.parent / manifest.typed, plan.parent / manifest.onnx)
    for path, what in ((files.plan, "plan"), (files.typed, "typed ONNX"), (files.onnx, "float32 ONNX")):
        if not path.is_file():
            raise PlanError(f"{path}, the {what} of {manifest_path(plan).name}, is missing", run=BUILD)
    return files


def _integrity(files: _Files, manifest: Manifest, model: FaceModel) -> tuple[Check, ...]:
    expected = (
        (PLAN, files.plan, manifest.plan_sha256),
        ("typed ONNX", files.typed, manifest.typed_sha256),
        ("float32 ONNX", files.onnx, manifest.onnx_sha256),
    )
    checks = [
        Check(name, True, f"{path} is the {name} of the manifest")
        if sha256_file(path) == digest
        else Check(name, False, f"{path} was changed after the build: it is not the {name} of the manifest any more")
        for name, path, digest in expected
    ]
    checks += _precision(files, manifest)
    same = model.checkpoint_sha256 == manifest.model.checkpoint_sha256
    text = "has the checkpoint" if same else "has another checkpoint than the one"
    checks.append(Check("checkpoint", same, f"{model.source} {text} that was exported"))
    return tuple(checks)


def _precision(files: _Files, manifest: Manifest) -> list[Check]:
    """The limits follow from the manifest's precision, so it has to be the one that the typed graph was made in."""
    from face3d_trt.graph.precision import record_path

    path = record_path(files.typed)
    if not path.is_file():
        return []
    made = TypedRecord.read(path).precision
    if made == manifest.precision:
        return [Check("precision", True, f"{files.typed} was made in {made}")]
    text = f"the manifest says {manifest.precision}, and {files.typed} was made in {made}"
    return [Check("precision", False, text)]


def _candidates(files: _Files, manifest: Manifest, checks: Sequence[Check]) -> tuple[list[Candidate], list[str]]:
    from face3d_trt.parity.runners import Candidate, float32_runner, typed_runner

    typed = f"the typed {manifest.precision} ONNX"
    exact, rounded = float32_runner(files.onnx), typed_runner(files.typed)
    candidates = [
        Candidate(exact.name, "ONNX Runtime, float32 ONNX", "fp32", lambda profile: exact),
        Candidate(rounded.name, f"ONNX Runtime, {typed}", manifest.precision, lambda profile: rounded),
    ]
    engine = _engine(files.plan, manifest, checks)
    if isinstance(engine, str):
        return candidates, [
            f"the plan itself was not run here ({engine}): the verdict is about {typed} it was built from"
        ]
    return [*candidates, engine], []


def _engine(plan: Path, manifest: Manifest, checks: Sequence[Check]) -> Candidate | str:
    """The plan, or why it is not run. TensorRT trusts what it deserialises, so other bytes than those built are not."""
    if not all(check.passed for check in checks if check.name == PLAN):
        return "its bytes are not those that the manifest speaks of, and such a file is not loaded"
    from face3d_trt.parity.engine import engine_candidate

    return engine_candidate(plan, manifest)


def _measured(
    manifest: Manifest,
    reference: Reference,
    candidates: Sequence[Candidate],
    sizes: Sequence[Batch],
    limits: Limits,
    report: Reporter,
) -> tuple[tuple[Row, ...], list[Failure], list[str]]:
    from face3d_trt.parity.gate import broken_failures, judge, reference_failures, unrun_failures
    from face3d_trt.parity.measure import measure
    from face3d_trt.parity.memory import HostMemory, free_memory

    info = manifest.model
    memory = HostMemory(free_memory(), info.width, sum(candidate.on_host for candidate in candidates))
    found = measure(reference, candidates, sizes, memory, report)
    titles = {candidate.name: candidate.title for candidate in candidates}
    # seeded weights amplify rounding: INT8 was off by half of the variation between pictures, however it was calibrated
    ungated: frozenset[Precision] = frozenset({"int8"}) if info.weights == "seeded" else frozenset()
    precisions = {candidate.name: candidate.precision for candidate in candidates}
    rows, failures = judge(found.measured, precisions, titles, limits, ungated)
    notes = [_too_large(batch, memory) for batch in found.left_out]
    if manifest.precision in ungated:
        notes.append(
            "the model has seeded weights (a stand-in that has learned nothing): they make INT8 figures meaningless, "
            "so these are shown and not gated"
        )
    still = sorted({row.label for row in rows if row.scale_kind != "variation"})
    if still:
        notes.append(
            f"pictures do not differ in {', '.join(still)}: errors there are measured against the values' size"
        )
    failures = [
        *reference_failures(found.diseased),
        *broken_failures(found.broken, titles),
        *unrun_failures(found, titles),
        *failures,
    ]
    return tuple(rows), failures, notes


def _too_large(batch: Batch, memory: HostMemory) -> str:
    from face3d_trt.engine.sizes import format_size

    return (
        f"ONNX Runtime was not given batch {batch.label}: it would take about {format_size(memory.needed(batch))} of "
        f"memory, and {format_size(memory.free or 0)} are free here"
    )
