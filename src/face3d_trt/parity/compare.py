"""`face3d-trt compare`: is what was built the model that it was built from?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt import __version__
from face3d_trt.errors import PlanError
from face3d_trt.optional import install_command, require
from face3d_trt.parity.limits import Limits, load_limits
from face3d_trt.parity.verdict import FaceRow, Failure, MeaningRow, Row, Verdict
from face3d_trt.records import Manifest, manifest_path
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from face3d_trt.decode import Decoder
    from face3d_trt.parity.basis import Bases, Basis
    from face3d_trt.parity.batches import Batch
    from face3d_trt.parity.exhibits import Exhibit
    from face3d_trt.parity.measure import Measurement
    from face3d_trt.parity.memory import HostMemory
    from face3d_trt.parity.runners import Candidate
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


@dataclass(frozen=True, eq=False)
class Comparison:
    """A verdict, and what is needed to show it.

    Attributes:
        verdict: All that was found.
        exhibits: Its worst pictures.
        decoder: The morphable model; None: there is none.
    """

    verdict: Verdict
    exhibits: tuple[Exhibit, ...]
    decoder: Decoder | None


def compare_each(every: Iterable[CompareOptions], report: Reporter = SILENT) -> Iterator[Verdict]:
    """`compare` for several plans; what they share (model, pictures, the truth about them) is computed once."""
    return (comparison.verdict for comparison in comparisons(every, report))


def comparisons(every: Iterable[CompareOptions], report: Reporter = SILENT) -> Iterator[Comparison]:
    """The same with the worst pictures; raises as `compare`."""
    from face3d_trt.parity.basis import Bases

    bases = Bases(report)
    for options in every:
        yield _compare(options, bases, report)


def _compare(options: CompareOptions, bases: Bases, report: Reporter) -> Comparison:
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
    found = _measured(manifest, basis, candidates, sizes, limits, report)
    verdict = Verdict(
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
        rows=found.rows,
        meaning=found.meaning,
        faces=found.faces,
        head_mm=basis.decoder.head_mm if basis.decoder is not None else None,
        failures=(*(Failure("integrity", check.text) for check in checks if not check.passed), *found.failures),
        notes=(*notes, *basis.notes, *found.notes),
        version=__version__,
    )
    return Comparison(verdict, found.exhibits, basis.decoder)


def _require(options: CompareOptions) -> None:
    """The packages without which nothing can be said: with a reference file only the comparator."""
    if options.reference is not None:
        require("polygraphy", "compare", "comparing")
        return
    for module, extra in (("torch", "export"), ("polygraphy", "export"), ("onnx", "export"), ("onnxruntime", "cpu")):
        require(module, extra, "comparing with float32 PyTorch")


def _grouped(sizes: Sequence[Batch]) -> tuple[str, ...]:
    """`1, 8, 31, 32 at 224x224 (profile 0)`."""
    groups: dict[str, list[str]] = {}
    for size in sizes:
        groups.setdefault(f"at {size.height}x{size.width} (profile {size.profile})", []).append(str(size.size))
    return tuple(f"{', '.join(numbers)} {place}" for place, numbers in groups.items())


@dataclass(frozen=True)
class _Found:
    """The part of a verdict that comes from running the candidates."""

    rows: tuple[Row, ...]
    meaning: tuple[MeaningRow, ...]
    faces: tuple[FaceRow, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    exhibits: tuple[Exhibit, ...]


def _measured(
    manifest: Manifest,
    basis: Basis,
    candidates: Sequence[Candidate],
    sizes: Sequence[Batch],
    limits: Limits,
    report: Reporter,
) -> _Found:
    from face3d_trt.parity.exhibits import choose_exhibits
    from face3d_trt.parity.gate import broken_failures, judge, reference_failures, unrun_failures
    from face3d_trt.parity.gather import Gatherer
    from face3d_trt.parity.meaning import Meter, find_similarity
    from face3d_trt.parity.meaning_gate import face_rows, judge_faces
    from face3d_trt.parity.measure import measure
    from face3d_trt.parity.memory import HostMemory, free_memory

    info, reference = manifest.model, basis.truths
    memory = HostMemory(free_memory(), info.width, sum(candidate.on_host for candidate in candidates))
    similarity = find_similarity()
    gatherer = Gatherer(Meter(basis.decoder, similarity) if basis.decoder else None, reference.names)
    found = measure(reference, candidates, sizes, memory, report, gatherer)
    faces = gatherer.errors(reference, report)
    titles = {candidate.name: candidate.title for candidate in candidates}
    # seeded weights amplify rounding: INT8 was off by half of the variation between pictures, however it was calibrated
    ungated: frozenset[Precision] = frozenset({"int8"}) if info.weights == "seeded" else frozenset()
    precisions = {candidate.name: candidate.precision for candidate in candidates}
    rows, failures = judge(found.measured, precisions, titles, limits, ungated)
    meaning, unlike = judge_faces(faces, precisions, titles, limits, ungated)
    notes = [_too_large(batch, memory) for batch in found.left_out]
    if manifest.precision in ungated:
        notes.append(
            "the model has seeded weights (a stand-in that has learned nothing): they make INT8 figures meaningless, "
            "so these are shown and not gated"
        )
    return _Found(
        rows=tuple(rows),
        meaning=tuple(meaning),
        faces=face_rows(faces),
        failures=(
            *reference_failures(found.diseased),
            *broken_failures(found.broken, titles),
            *unrun_failures(found, titles),
            *failures,
            *unlike,
        ),
        notes=(*notes, *_remarks(rows, found, basis), *_unmeasured(basis, similarity is not None)),
        exhibits=choose_exhibits(reference, gatherer, faces, meaning, rows),
    )


def _remarks(rows: Sequence[Row], found: Measurement, basis: Basis) -> Iterator[str]:
    """What the pictures do to the figures."""
    from face3d_trt.parity.variation import variation_notes

    still = sorted({row.label for row in rows if row.scale_kind != "variation"})
    if still:
        yield f"pictures do not differ in {', '.join(still)}: errors there are measured against the values' size"
    measured = dict.fromkeys((entry.batch.height, entry.batch.width) for entry in found.measured)
    yield from variation_notes(basis.truths.at(*size) for size in measured)


def _unmeasured(basis: Basis, similarity: bool) -> Iterator[str]:
    """What could not be measured in the face's own terms."""
    if basis.decoder is None:
        where = basis.source.file or basis.model
        yield f"nothing is said in mm, px and degrees: {where} has no morphable model"
    elif not similarity:
        yield f"SSIM was not measured: scikit-image cannot be imported ({install_command('compare')})"


def _too_large(batch: Batch, memory: HostMemory) -> str:
    from face3d_trt.engine.sizes import format_size

    return (
        f"ONNX Runtime was not given batch {batch.label}: it would take about {format_size(memory.needed(batch))} of "
        f"memory, and {format_size(memory.free or 0)} are free here"
    )
