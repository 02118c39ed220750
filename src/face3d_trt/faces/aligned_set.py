"""A folder of aligned crops made from photos: what a calibration set is."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PIL import Image

from face3d_trt.errors import CalibrationError, ImageError, UsageError
from face3d_trt.faces.collect import Crop, Skipped, describe, iterate_faces
from face3d_trt.faces.images import Pixels, image_files, read_image
from face3d_trt.files import write_beside, write_text
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.faces.detect import Detector

SKIPPED_FILE = "skipped.csv"  # columns: file, reason


@dataclass(frozen=True)
class SetOptions:
    """What to make an aligned set from, and how.

    Attributes:
        source: A photo, or a folder of photos.
        target: The folder to write; empty, absent, or with pictures of the same run.
        template: (5, 3) the model's alignment template; None with the detector `aligned`.
        detector: See `collect_faces`.
        limit: Stop after so many faces.
    """

    source: Path
    target: Path
    template: npt.ArrayLike | None
    detector: str | Detector = "mtcnn"
    limit: int | None = None


def make_set(options: SetOptions, report: Reporter = SILENT) -> tuple[int, tuple[Skipped, ...]]:
    """Write one PNG of 224×224 px for each photo with a face, and `skipped.csv` with what was left out and why.

    Each file is whole or not there, so an interrupted run can be repeated. A picture that is already there must be the
    one that would be written.

    Returns:
        How many faces stand in the folder now, and which pictures were left out.

    Raises:
        CalibrationError: No photo gives a face; nothing was written. Or the folder holds pictures of another origin.
        ImageError, FaceError, UsageError, MissingError: As `collect_faces`; and a target inside the source.
        StorageError: The target cannot be written.
    """
    targets = _target_names(options.source)
    present = _check_target(options, targets.values())
    written, skipped = [], []
    for face in iterate_faces(options.source, options.template, options.detector, report, options.limit):
        if isinstance(face, Skipped):
            skipped.append(face)
        else:
            written.append(targets[face.name])
            _write(face, written[-1], options.target)
    if not written:
        raise CalibrationError(
            f"none of the {len(skipped)} pictures in {options.source} gives a face:\n{describe(skipped)}",
            allowed="photos with an upright face",
        )
    if stale := sorted(present - set(written)):
        raise _mixed(options.target, f"{len(stale)} pictures that this run did not make, such as {stale[0]}")
    write_text(options.target / SKIPPED_FILE, _csv(skipped))
    return len(written), tuple(skipped)


def _target_names(source: Path) -> dict[str, str]:
    """Name in the source → name in the target: `a/b.jpg` → `a/b.png`, or `a/b.jpg.png` beside a `b.webp`."""
    names = [path.as_posix() for path in image_files(source)[0]] if source.is_dir() else [source.name]
    stems = Counter(str(PurePosixPath(name).with_suffix("")).lower() for name in names)
    return {
        name: f"{name}.png" if stems[str(stem).lower()] > 1 else f"{stem}.png"
        for name in names
        for stem in [PurePosixPath(name).with_suffix("")]
    }


def _check_target(options: SetOptions, expected: Iterable[str]) -> set[str]:
    """The files in the target; before any work, refuse those that cannot be of this source's set."""
    source, target = options.source.resolve(), options.target.resolve()
    if target == source or source in target.parents:
        raise UsageError(f"{options.target} lies inside {options.source}", allowed="a folder outside the photos' one")
    if target.is_file():
        raise UsageError(f"{options.target} is a file", allowed="a folder, which will be made if it is absent")
    present = {path.as_posix() for kind in image_files(target) for path in kind} if target.is_dir() else set()
    present.discard(SKIPPED_FILE)
    if foreign := sorted(present.difference(expected)):
        raise _mixed(options.target, f"{len(foreign)} files that are not of this set, such as {foreign[0]}")
    return present


def _write(face: Crop, name: str, folder: Path) -> None:
    path = folder / name
    if path.exists():
        if not _is_same(path, face.pixels):
            raise _mixed(folder, f"another {name}")
        return
    with write_beside(path) as temporary:
        Image.fromarray(face.pixels).save(temporary, format="PNG")


def _is_same(path: Path, pixels: Pixels) -> bool:
    try:
        return np.array_equal(read_image(path), pixels)
    except ImageError:
        return False


def _mixed(folder: Path, what: str) -> CalibrationError:
    return CalibrationError(
        f"{folder} already holds {what}; sets are not mixed",
        allowed="an empty or absent folder, or one with crops that this very command made",
        run=f"rm -r {folder}   # or name another folder",
    )


def _csv(skipped: Iterable[Skipped]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("file", "reason"))
    rows.writerows((each.name, each.reason) for each in skipped)
    return text.getvalue()
