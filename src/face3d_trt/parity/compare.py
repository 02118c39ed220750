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
from face3d_trt.records import Manifest, manifest_path
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.model.load import FaceModel
    from face3d_trt.parity.batches import Batch
    from face3d_trt.parity.pictures import Chosen
    from face3d_trt.parity.runners import Candidate
    from face3d_trt.records import Precision

ENGINES = Path("engines")
BUILD = "face3d-trt build"


@dataclass(frozen=True)
class CompareOptions:
    """What to compare.

    Attributes:
        plan: A plan with its manifest beside it.
        images: A photo, an aligned crop or a folder of them; None: the calibration folder of the manifest, where it
            exists, else the package's sample faces.
        model: Directory or ModelScope id of the reference; None: the one in the manifest.
        limits: A file like `limits.json`; None: the package's.
    """

    plan: Path
    images: Path | None = None
    model: str | None = None
    limits: Path | None = None


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

    A file that was changed after the build is a failure of its own, and the comparison still runs.

    Raises:
        PlanError: The plan, its manifest or one of the ONNX files is missing or damaged.
        GraphError: An ONNX file cannot be loaded.
        ModelError: The reference cannot be loaded.
        UsageError: The limits file is malformed.
        ImageError, FaceError, CalibrationError: No picture can be used.
        MissingError: A package or the model is missing here.
    """
    for module, extra in (("torch", "export"), ("polygraphy", "export"), ("onnx", "export"), ("onnxruntime", "cpu")):
        require(module, extra, "comparing with float32 PyTorch")
    from face3d_trt.model.load import load_model
    from face3d_trt.parity.batches import batches
    from face3d_trt.parity.pictures import choose_pictures

    limits = load_limits(options.limits)
    manifest = Manifest.read(manifest_path(options.plan))
    files = _files(options.plan, manifest)
    sizes = batches(manifest.profiles, manifest.model.input)
    report.stage(f"plan       {options.plan}")
    model = load_model(options.model or _named(manifest), morphable=manifest.model.outputs == "mesh")
    checks = _integrity(files, manifest, model)
    chosen = choose_pictures(options.images, manifest, report)
    candidates, notes = _candidates(options.plan, files, manifest)
    rows, failures, remarks = _measured(manifest, model, candidates, sizes, chosen, limits, report)
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
        notes=(*notes, *chosen.notes, *remarks),
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


def _named(manifest: Manifest) -> str:
    info = manifest.model
    return info.source if info.revision is None else f"{info.source}@{info.revision}"


def _integrity(files: _Files, manifest: Manifest, model: FaceModel) -> tuple[Check, ...]:
    expected = (
        ("plan", files.plan, manifest.plan_sha256),
        ("typed ONNX", files.typed, manifest.typed_sha256),
        ("float32 ONNX", files.onnx, manifest.onnx_sha256),
    )
    checks = [
        Check(name, True, f"{path} is the {name} of the manifest")
        if sha256_file(path) == digest
        else Check(name, False, f"{path} was changed after the build: it is not the {name} of the manifest any more")
        for name, path, digest in expected
    ]
    same = model.checkpoint_sha256 == manifest.model.checkpoint_sha256
    text = "has the checkpoint" if same else "has another checkpoint than the one"
    checks.append(Check("checkpoint", same, f"{model.source} {text} that was exported"))
    return tuple(checks)


def _candidates(plan: Path, files: _Files, manifest: Manifest) -> tuple[list[Candidate], list[str]]:
    from face3d_trt.parity.engine import engine_candidate
    from face3d_trt.parity.runners import Candidate, float32_runner, typed_runner

    typed = f"the typed {manifest.precision} ONNX"
    exact, rounded = float32_runner(files.onnx), typed_runner(files.typed)
    candidates = [
        Candidate(exact.name, "ONNX Runtime, float32 ONNX", "fp32", lambda profile: exact),
        Candidate(rounded.name, f"ONNX Runtime, {typed}", manifest.precision, lambda profile: rounded),
    ]
    engine = engine_candidate(plan, manifest)
    if isinstance(engine, str):
        return candidates, [
            f"the plan itself was not run here ({engine}): the verdict is about {typed} it was built from"
        ]
    return [*candidates, engine], []


def _measured(
    manifest: Manifest,
    model: FaceModel,
    candidates: Sequence[Candidate],
    sizes: Sequence[Batch],
    chosen: Chosen,
    limits: Limits,
    report: Reporter,
) -> tuple[tuple[Row, ...], list[Failure], list[str]]:
    from face3d_trt.model.reference import reference_module
    from face3d_trt.parity.gate import broken_failures, judge, reference_failures
    from face3d_trt.parity.measure import measure
    from face3d_trt.parity.runners import TorchRunner

    info = manifest.model
    names = [output.name for output in manifest.outputs]
    reference = TorchRunner(reference_module(model, info.outputs, info.input), names, info.input)
    measured, broken, diseased = measure(reference, candidates, sizes, chosen.pictures, report)
    titles = {candidate.name: candidate.title for candidate in candidates}
    # seeded weights amplify rounding: INT8 was off by half of the variation between pictures, however it was calibrated
    ungated: frozenset[Precision] = frozenset({"int8"}) if info.weights == "seeded" else frozenset()
    precisions = {candidate.name: candidate.precision for candidate in candidates}
    rows, failures = judge(measured, precisions, titles, limits, ungated)
    notes = []
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
    failures = [*reference_failures(diseased), *broken_failures(broken, titles), *failures]
    return tuple(rows), failures, notes
