"""Which pictures are compared on: the user's, else the calibration folder's, else the package's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from face3d_trt.errors import Face3DError
from face3d_trt.parity.measure import Pictures
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.records import Manifest

PICTURES = 32  # more cost minutes on two cores at full width and change no figure by much
ENOUGH = 8  # pictures that say how much pictures differ


@dataclass(frozen=True)
class Chosen:
    """The pictures and how they came to be chosen.

    Attributes:
        pictures: What is fed.
        origin: Where from, for people.
        skipped: `name: reason` of pictures that could not be used.
        notes: What else the reader should know.
    """

    pictures: Pictures
    origin: str
    skipped: tuple[str, ...]
    notes: tuple[str, ...]


def choose_pictures(images: Path | None, manifest: Manifest, report: Reporter = SILENT) -> Chosen:
    """Collect, align, and fill up.

    Args:
        images: What the user named: a photo, an aligned crop, or a folder of them.
        manifest: Of the plan: names the calibration folder, the template and the input's layout.
        report: Progress of detection.

    Raises:
        FaceError: Nothing usable in `images`.
        CalibrationError: Likewise.
        ImageError: The one picture cannot be read.
    """
    from face3d_trt.faces.collect import collect_faces

    template = np.array(manifest.model.template, dtype=np.float64)
    notes: list[str] = []
    source = images
    folder = None if manifest.calibration is None else Path(manifest.calibration.folder)
    if source is None and folder is not None and folder.exists():
        source = folder
    if source is None:
        return _filled([], [], "", (), notes, manifest.model.input)
    try:
        faces = collect_faces(source, template, report=report, limit=PICTURES)
    except Face3DError as error:
        if images is not None:
            raise
        notes.append(f"the calibration folder {source} was not used: {error.problem}")
        return _filled([], [], "", (), notes, manifest.model.input)
    skipped = tuple(f"{entry.name}: {entry.reason}" for entry in faces.skipped)
    return _filled(list(faces.crops), list(faces.names), str(source), skipped, notes, manifest.model.input)


def _filled(
    crops: list[np.ndarray],
    names: list[str],
    origin: str,
    skipped: tuple[str, ...],
    notes: list[str],
    layout: Literal["float32", "uint8"],
) -> Chosen:
    """Add the package's sample faces where too few pictures are there to tell how much pictures differ."""
    distinct = len({crop.tobytes() for crop in crops})
    if distinct < ENOUGH:
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
    return Chosen(Pictures(np.stack(crops), tuple(names), layout), origin, skipped, tuple(notes))
