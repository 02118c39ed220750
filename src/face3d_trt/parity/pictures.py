"""Which pictures are compared on: the user's, else the package's own, which no calibration has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from face3d_trt.parity.places import find_directory
from face3d_trt.parity.truth import Pictures
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.records import Manifest, ModelInfo

ENOUGH = 8  # pictures that say how much pictures differ


@dataclass(frozen=True)
class Chosen:
    """The pictures and how they came to be chosen.

    Attributes:
        pictures: What is fed.
        origin: Where from, for people.
        fingerprint: Of the crops that the user's pictures gave; None for the package's own.
        skipped: `name: reason` of pictures that could not be used.
        notes: What else the reader should know.
        samples: Whether the package's samples are among them.
    """

    pictures: Pictures
    origin: str
    fingerprint: str | None
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    samples: bool = False


def choose_pictures(images: Path | None, info: ModelInfo, limit: int, report: Reporter = SILENT) -> Chosen:
    """Collect, align, and fill up.

    Args:
        images: What the user named: a photo, an aligned crop, or a folder of them; None: the package's sample faces,
            which calibrated nothing.
        info: Of the model: the alignment template and the input's layout.
        limit: The most pictures that are taken of a folder, the first by name.
        report: Progress of detection.

    Raises:
        FaceError: Nothing usable in `images`.
        CalibrationError: Likewise.
        ImageError: The one picture cannot be read.
        UsageError: The limit is below 1.
    """
    from face3d_trt.faces.collect import collect_faces

    if images is None:
        return _filled([], [], "", None, (), [], info.input)
    faces = collect_faces(images, np.array(info.template, dtype=np.float64), report=report, limit=limit)
    skipped = tuple(f"{entry.name}: {entry.reason}" for entry in faces.skipped)
    notes = _of_how_many(images, len(faces.names), len(skipped))
    return _filled(list(faces.crops), list(faces.names), str(images), faces.fingerprint, skipped, notes, info.input)


def _of_how_many(images: Path, used: int, skipped: int) -> list[str]:
    if not images.is_dir():
        return []
    from face3d_trt.faces.images import image_files

    total = len(image_files(images)[0])
    if used + skipped >= total:
        return []
    return [f"{used} of {total} pictures in {images} were used, the first by name; --limit {total} takes all"]


def calibration_note(chosen: Chosen, images: Path | None, manifest: Manifest, plan: Path) -> tuple[str, ...]:
    """What has to be said where a plan is judged on the pictures that calibrated it."""
    calibration = manifest.calibration
    if calibration is None or images is None:
        return ()
    folder = find_directory(calibration.folder, plan)
    same_folder = folder is not None and images.resolve() == folder.resolve()
    if not same_folder and chosen.fingerprint != calibration.fingerprint:
        return ()
    return (calibrated_on_these(manifest),)


def calibrated_on_these(manifest: Manifest) -> str:
    """The note that the pictures of the comparison are those of the calibration."""
    note = f"{manifest.precision} was calibrated on these very pictures, and others may come out worse"
    return f"{note}; without --images the package's sample faces are used"


def _filled(
    crops: list[np.ndarray],
    names: list[str],
    origin: str,
    fingerprint: str | None,
    skipped: tuple[str, ...],
    notes: list[str],
    layout: Literal["float32", "uint8"],
) -> Chosen:
    """Add the package's sample faces where too few pictures are there to tell how much pictures differ."""
    distinct = len({crop.tobytes() for crop in crops})
    few = distinct < ENOUGH
    if few:
        from face3d_trt.faces.samples import sample_crops

        samples = sample_crops()
        if distinct:
            notes.append(
                f"{distinct} distinct {'picture says' if distinct == 1 else 'pictures say'} too little about how much "
                f"pictures differ: the package's {len(samples)} sample faces were added"
            )
        crops = [*crops, *samples]
        names = [*names, *(f"sample {index + 1}" for index in range(len(samples)))]
        origin = f"{origin} and the package's samples" if origin else "the package's samples"
    pictures = Pictures(np.stack(crops), tuple(names), layout)
    return Chosen(pictures, origin, fingerprint, skipped, tuple(notes), samples=few)
