"""The files of a plan: are they those that were built, and which of them can be run here?"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.errors import ImageError, MissingError, PlanError
from face3d_trt.files import sha256_file
from face3d_trt.optional import require
from face3d_trt.parity.verdict import Check
from face3d_trt.records import Manifest, TypedRecord, manifest_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from polygraphy.backend.base import BaseRunner

    from face3d_trt.parity.runners import Candidate
    from face3d_trt.records import Precision

PLAN = "plan"  # name of the check of its bytes
FLOAT32 = "the float32 ONNX"


@dataclass(frozen=True)
class PlanFiles:
    """The plan, and the graphs that it came from; None where one is missing and may be."""

    plan: Path
    typed: Path | None
    onnx: Path | None


def files_of(plan: Path, manifest: Manifest, *, plan_alone: bool) -> PlanFiles:
    """Where the files are that a manifest speaks of.

    Args:
        plan: The plan.
        manifest: Of it.
        plan_alone: The graphs may be missing.

    Raises:
        PlanError: One is missing that may not be.
    """
    typed, onnx = plan.parent / manifest.typed, plan.parent / manifest.onnx
    for path, what in ((plan, "plan"), (typed, "typed ONNX"), (onnx, "float32 ONNX")):
        if not path.is_file() and (path == plan or not plan_alone):
            raise PlanError(
                f"{path}, the {what} of {manifest_path(plan).name}, is missing",
                allowed="the files as export and build wrote them, copied together",
                run=f"{_export(manifest, onnx)} && {manifest.command}" if path == onnx else manifest.command,
            )
    return PlanFiles(plan, typed if typed.is_file() else None, onnx if onnx.is_file() else None)


def _export(manifest: Manifest, onnx: Path) -> str:
    """The command that writes the float32 graph."""
    info = manifest.model
    source = info.source if info.revision is None else f"{info.source}@{info.revision}"
    words = ["face3d-trt", "export", "--model", source, "--outputs", info.outputs, "--input", info.input]
    return shlex.join([*words, "-o", str(onnx)])


def present(plans: Iterable[Path], images: Path | None) -> None:
    """Whether what was named is there, before packages are loaded that take seconds.

    Raises:
        PlanError: A plan is not, nor its manifest.
        ImageError: The pictures are not.
    """
    for plan in plans:
        if not plan.is_file() and not manifest_path(plan).is_file():
            raise PlanError(
                f"{plan} {'is a folder' if plan.is_dir() else 'is missing'}",
                allowed="NAME.plan with NAME.plan.json beside it, as build writes them",
                run=f"ls {shlex.quote(str(plan.parent))}/*.plan    # those that are there",
            )
    if images is not None and not images.exists():
        raise ImageError(
            f"{images} is missing",
            allowed="a picture, or a folder of photos or aligned crops",
            run="the same command without --images: it then takes the package's sample faces",
        )


def check_files(files: PlanFiles, manifest: Manifest) -> tuple[Check, ...]:
    """Whether the files that are there are those of the manifest."""
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
        if path is not None
    ]
    return (*checks, *_precision(files, manifest))


def _precision(files: PlanFiles, manifest: Manifest) -> list[Check]:
    """The limits follow from the manifest's precision, so it has to be the one that the typed graph was made in."""
    from face3d_trt.graph.precision import record_path

    if files.typed is None or not record_path(files.typed).is_file():
        return []
    made = TypedRecord.read(record_path(files.typed)).precision
    if made == manifest.precision:
        return [Check("precision", True, f"{files.typed} was made in {made}")]
    text = f"the manifest says {manifest.precision}, and {files.typed} was made in {made}"
    return [Check("precision", False, text)]


def candidates_of(files: PlanFiles, manifest: Manifest, checks: Sequence[Check]) -> tuple[list[Candidate], list[str]]:
    """What can be run here, and a note for what cannot.

    Raises:
        MissingError: Neither the plan nor its typed ONNX can be run, so that nothing could be said of the plan.
    """
    typed = f"the typed {manifest.precision} ONNX"
    graphs, reasons = _graphs(files, manifest, typed)
    engine = _engine(files.plan, manifest, checks)
    notes = [f"{what} was not run here ({reason})" for what, reason in reasons.items()]
    if not isinstance(engine, str):
        return [*graphs, engine], notes
    if typed not in reasons:
        text = f"the plan itself was not run here ({engine}): the verdict is about {typed} it was built from"
        return graphs, [text, *notes]
    if all(check.passed for check in checks):
        raise MissingError(
            f"nothing can be said of {files.plan} here: the plan cannot be run ({engine}), and neither can {typed} "
            f"({reasons[typed]})",
            allowed="the GPU and the TensorRT that it was built for; or the typed ONNX beside it, with onnx and "
            "onnxruntime",
            run="face3d-trt doctor",
        )
    return graphs, [f"the plan itself was not run here ({engine})", *notes]


def _graphs(files: PlanFiles, manifest: Manifest, typed: str) -> tuple[list[Candidate], dict[str, str]]:
    """The ONNX files as candidates, and the reason for each that is none."""
    from face3d_trt.parity.runners import float32_runner, typed_runner

    lacking = _lacking("onnx", "onnxruntime")
    candidates: list[Candidate] = []
    reasons: dict[str, str] = {}
    exact: Precision = "fp32"
    for path, what, runner_of, precision in (
        (files.onnx, FLOAT32, float32_runner, exact),
        (files.typed, typed, typed_runner, manifest.precision),
    ):
        if path is None or lacking is not None:
            reasons[what] = lacking or "the file is not here"
        else:
            candidates.append(_graph(runner_of(path), what, precision))
    return candidates, reasons


def _graph(runner: BaseRunner, what: str, precision: Precision) -> Candidate:
    from face3d_trt.parity.runners import Candidate

    return Candidate(runner.name, f"ONNX Runtime, {what}", precision, lambda profile: runner)


def _lacking(*modules: str) -> str | None:
    """Which of the packages for ONNX files cannot be imported."""
    return next((f"{module} cannot be imported" for module in modules if not _importable(module)), None)


def _importable(module: str) -> bool:
    try:
        require(module, "cpu", "running ONNX files")
    except MissingError:
        return False
    return True


def _engine(plan: Path, manifest: Manifest, checks: Sequence[Check]) -> Candidate | str:
    """The plan, or why it is not run. TensorRT trusts what it deserialises, so other bytes than those built are not."""
    if not all(check.passed for check in checks if check.name == PLAN):
        return "its bytes are not those that the manifest speaks of, and such a file is not loaded"
    from face3d_trt.parity.engine import engine_candidate

    return engine_candidate(plan, manifest)
