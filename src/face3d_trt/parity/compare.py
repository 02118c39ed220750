"""`face3d-trt compare`: is what was built the model that it was built from?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt import __version__
from face3d_trt.errors import PlanError
from face3d_trt.optional import require
from face3d_trt.parity.limits import Limits, load_limits
from face3d_trt.parity.verdict import Failure, Row, Verdict
from face3d_trt.records import Manifest, manifest_path
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from face3d_trt.parity.basis import Bases
    from face3d_trt.parity.batches import Batch
    from face3d_trt.parity.memory import HostMemory
    from face3d_trt.parity.runners import Candidate
    from face3d_trt.parity.truth import Truths
    from face3d_trt.records import Precision

ENGINES = Path("engines")
PICTURES = 32  # more cost minutes on two cores at full width and change no figure by much
BUILD = "face3d-trt build"


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
        reference: A file of `compare --save-reference`, in the place of PyTorch, model and images. The ONNX files may
            then be missing, and the packages onnx and onnxruntime too.
    """

    plan: Path
    images: Path | None = None
    model: str | None = None
    limits: Path | None = None
    limit: int = PICTURES
    reference: Path | None = None


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
        UsageError: The limits file is malformed; the reference file is damaged, or does not fit the plan.
        ImageError, FaceError, CalibrationError: No picture can be used.
        MissingError: A package or the model is missing here, or neither the plan nor its typed ONNX can be run.
    """
    return next(compare_each([options], report))


def compare_each(every: Iterable[CompareOptions], report: Reporter = SILENT) -> Iterator[Verdict]:
    """`compare` for several plans; what they share (model, pictures, the truth about them) is computed once."""
    from face3d_trt.parity.basis import Bases

    bases = Bases(report)
    for options in every:
        yield _compare(options, bases, report)


def _compare(options: CompareOptions, bases: Bases, report: Reporter) -> Verdict:
    _require(options)
    from face3d_trt.parity.batches import batches
    from face3d_trt.parity.candidates import candidates_of, check_files, files_of

    limits = load_limits(options.limits)
    manifest = Manifest.read(manifest_path(options.plan))
    files = files_of(options.plan, manifest, plan_alone=options.reference is not None)
    sizes = batches(manifest.profiles, manifest.model.input)
    report.stage(f"plan       {options.plan}")
    basis = bases.of(options, manifest)
    checks = (*check_files(files, manifest), basis.checkpoint)
    candidates, notes = candidates_of(files, manifest, checks)
    rows, failures, remarks = _measured(manifest, basis.truths, candidates, sizes, limits, report)
    return Verdict(
        plan=str(options.plan),
        precision=manifest.precision,
        model=basis.model,
        reference=basis.source,
        weights=manifest.model.weights,
        engine_ran=any(candidate.name == "tensorrt" for candidate in candidates),
        candidates={candidate.name: candidate.title for candidate in candidates},
        batches=_grouped(sizes),
        pictures=basis.truths.names,
        skipped=basis.skipped,
        origin=basis.origin,
        checks=checks,
        rows=rows,
        failures=(*(Failure("integrity", check.text) for check in checks if not check.passed), *failures),
        notes=(*notes, *basis.notes, *remarks),
        version=__version__,
    )


def _require(options: CompareOptions) -> None:
    """The packages without which nothing can be said: with a reference file only the comparator."""
    if options.reference is not None:
        require("polygraphy", "gpu", "comparing")
        return
    for module, extra in (("torch", "export"), ("polygraphy", "export"), ("onnx", "export"), ("onnxruntime", "cpu")):
        require(module, extra, "comparing with float32 PyTorch")


def _grouped(sizes: Sequence[Batch]) -> tuple[str, ...]:
    """`1, 8, 31, 32 at 224x224 (profile 0)`."""
    groups: dict[str, list[str]] = {}
    for size in sizes:
        groups.setdefault(f"at {size.height}x{size.width} (profile {size.profile})", []).append(str(size.size))
    return tuple(f"{', '.join(numbers)} {place}" for place, numbers in groups.items())


def _measured(
    manifest: Manifest,
    reference: Truths,
    candidates: Sequence[Candidate],
    sizes: Sequence[Batch],
    limits: Limits,
    report: Reporter,
) -> tuple[tuple[Row, ...], list[Failure], list[str]]:
    from face3d_trt.parity.gate import broken_failures, judge, reference_failures, unrun_failures
    from face3d_trt.parity.measure import measure
    from face3d_trt.parity.memory import HostMemory, free_memory
    from face3d_trt.parity.variation import variation_notes

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
    measured = dict.fromkeys((entry.batch.height, entry.batch.width) for entry in found.measured)
    notes += variation_notes(reference.at(*size) for size in measured)
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
