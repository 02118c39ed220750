"""What a verdict stands on: the truth, and where it comes from. Computed by PyTorch here, or read from a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.errors import UsageError
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.parity.compare import CompareOptions
    from face3d_trt.parity.reference_file import ReferenceFile
    from face3d_trt.parity.session import Session
    from face3d_trt.parity.truth import Truths
    from face3d_trt.parity.verdict import Check, ReferenceSource
    from face3d_trt.records import Manifest


@dataclass(frozen=True)
class Basis:
    """The reference of one comparison.

    Attributes:
        truths: What is right, at every image size of the plan.
        source: Where that comes from.
        model: The directory or id of the model.
        checkpoint: Whether it is the model that was exported.
        skipped: `name: reason` of pictures that could not be used.
        origin: Where the pictures come from, for people.
        notes: What else the reader should know of them.
    """

    truths: Truths
    source: ReferenceSource
    model: str
    checkpoint: Check
    skipped: tuple[str, ...]
    origin: str
    notes: tuple[str, ...]


class Bases:
    """Bases of several comparisons; what they share is computed, or read, once.

    Args:
        report: Told what is read and computed.
    """

    def __init__(self, report: Reporter = SILENT) -> None:
        self._report = report
        self._session: Session | None = None
        self._files: dict[Path, ReferenceFile] = {}

    def of(self, options: CompareOptions, manifest: Manifest) -> Basis:
        """The basis for one plan.

        Raises:
            UsageError: The reference file is damaged, of another model, or without an image size of the plan.
            ModelError, MissingError, ImageError, FaceError, CalibrationError: As `load_model` and `choose_pictures`.
        """
        if options.reference is not None:
            return self._saved(options.reference, options, manifest)
        if self._session is None:
            from face3d_trt.parity.session import Session

            self._session = Session(self._report)
        return self._session.basis(options, manifest)

    def _saved(self, path: Path, options: CompareOptions, manifest: Manifest) -> Basis:
        from face3d_trt.parity.reference_file import read_reference
        from face3d_trt.parity.saved import saved_basis

        for option, value in (("--images", options.images), ("--model", options.model)):
            if value is not None:
                raise UsageError(
                    f"{option} {value} means nothing beside --reference {path}, which has its pictures and its model's "
                    "outputs inside",
                    allowed="--reference alone; or --save-reference with them, where torch is",
                    run=f"face3d-trt compare --plan {options.plan} --reference {path}",
                )
        if path not in self._files:
            self._files[path] = read_reference(path)
        return saved_basis(self._files[path], manifest, options.plan, self._report)
