"""A reference file in the place of PyTorch: no torch, no model, no photos."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from face3d_trt.errors import UsageError
from face3d_trt.parity.basis import Basis
from face3d_trt.parity.batches import batches
from face3d_trt.parity.pictures import calibrated_on_these
from face3d_trt.parity.reference_file import size_name
from face3d_trt.parity.truth import Truth, feed, truth_of
from face3d_trt.parity.verdict import Check, ReferenceSource
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from face3d_trt.parity.reference_file import ReferenceFile, SeenPictures, Size
    from face3d_trt.parity.truth import Array
    from face3d_trt.records import Calibration, Manifest


class SavedReference:
    """The truth of a reference file.

    Args:
        file: That was read.
        report: Told which image size is looked up.
    """

    def __init__(self, file: ReferenceFile, report: Reporter = SILENT) -> None:
        self._file = file
        self._report = report
        self._truths: dict[Size, Truth] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What to call each picture."""
        return self._file.record.names

    def feed(self, crops: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """One batch of crops as the graph takes it."""
        return feed(crops, self._file.record.model.input)

    def at(self, height: int, width: int) -> Truth:
        """The truth at an image size that the file has."""
        size = (height, width)
        if size not in self._truths:
            file, record = self._file, self._file.record
            self._report.stage(f"reference  {file.path}, {len(record.names)} pictures at {size_name(size)}")
            usual = dict(zip(record.sizes, record.usual, strict=True))[size]
            self._truths[size] = truth_of(file.crops[size], file.outputs[size], usual)
        return self._truths[size]


def saved_basis(file: ReferenceFile, manifest: Manifest, plan: Path, report: Reporter = SILENT) -> Basis:
    """The file as the basis of a verdict about `plan`.

    Raises:
        UsageError: It is of another model, of other outputs or another input, or has not every image size of the plan.
    """
    _fits(file, manifest, plan)
    record = file.record
    calibration = manifest.calibration
    seen = calibration is not None and _calibrated_on(record.seen, calibration)
    return Basis(
        truths=SavedReference(file, report),
        source=ReferenceSource(
            file=str(file.path),
            sha256=file.sha256,
            checkpoint_sha256=record.model.checkpoint_sha256,
            inputs_sha256=record.inputs_sha256,
            torch=record.tools.get("torch", "unknown"),
            created=record.created,
            version=record.version,
        ),
        model=record.model.source,
        checkpoint=Check("checkpoint", True, f"{file.path} is of the checkpoint that was exported"),
        skipped=record.skipped,
        origin=record.origin,
        notes=(*record.notes, *([calibrated_on_these(manifest)] if seen else [])),
    )


def _fits(file: ReferenceFile, manifest: Manifest, plan: Path) -> None:
    ours, theirs = file.record.model, manifest.model
    if ours.checkpoint_sha256 != theirs.checkpoint_sha256:
        raise UsageError(
            f"{file.path} is of another model than {plan}: of {ours.source} (checkpoint "
            f"{ours.checkpoint_sha256[:12]}…), and the plan of {theirs.source} ({theirs.checkpoint_sha256[:12]}…)",
            allowed="a reference of the model that was exported",
            run=_save(file, manifest, ()),
        )
    for what, mine, wanted in (("outputs", ours.outputs, theirs.outputs), ("input", ours.input, theirs.input)):
        if mine != wanted:
            raise UsageError(
                f"{file.path} was saved with {what} {mine}, and {plan} has {what} {wanted}",
                allowed=f"a reference with --{what} {wanted}",
                run=_save(file, manifest, ()),
            )
    needed = {(batch.height, batch.width) for batch in batches(manifest.profiles, theirs.input)}
    held = file.record.sizes
    if missing := sorted(needed.difference(held)):
        raise UsageError(
            f"{file.path} has no outputs at {', '.join(map(size_name, missing))}, which profiles of {plan} need",
            allowed=f"the image sizes that it holds: {', '.join(map(size_name, held))}",
            run=_save(file, manifest, (*held, *missing)),
        )


def _save(file: ReferenceFile, manifest: Manifest, sizes: tuple[Size, ...]) -> str:
    """The command that writes a file that fits."""
    info = manifest.model
    if not sizes:
        sizes = tuple(sorted({(batch.height, batch.width) for batch in batches(manifest.profiles, info.input)}))
    asked = " ".join(f"--size {size_name(size)}" for size in sizes)
    model = info.source if info.revision is None else f"{info.source}@{info.revision}"
    facts = f"--outputs {info.outputs} --input {info.input} {asked}"
    return f"face3d-trt compare --save-reference {file.path} --model {model} {facts}    # where torch is"


def _calibrated_on(seen: SeenPictures, calibration: Calibration) -> bool:
    """Whether the pictures are the calibration's: by their pixels, or by the folder that they were in."""
    if calibration.fingerprint in (seen.fingerprint, *seen.calibrated):
        return True
    folder = os.path.normpath(os.path.join(seen.seen_from, calibration.folder))
    return seen.folder is not None and folder == seen.folder
