"""Aligned faces from a photo, or from a folder of photos and aligned crops, with an account of what was left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import CalibrationError, FaceError, ImageError, UsageError
from face3d_trt.faces.align import align
from face3d_trt.faces.detect import MIN_FACE_PX, Detector, main_face
from face3d_trt.faces.detect import detector as find_detector
from face3d_trt.faces.images import EXTENSIONS, Pixels, image_files, read_photo
from face3d_trt.files import fingerprint, sha256_file
from face3d_trt.names import CROP
from face3d_trt.report import SILENT, Reporter

_NAMED = 5  # how many of a list a message names before it counts the rest


@dataclass(frozen=True)
class Skipped:
    """A picture that gave no crop, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Crop:
    """An aligned face: (224, 224, 3) uint8 RGB, and the file it came from."""

    name: str
    pixels: Pixels


@dataclass(frozen=True, eq=False)
class FaceSet:
    """Aligned faces.

    Attributes:
        crops: (N, 224, 224, 3) uint8 RGB, N ≥ 1.
        names: The N files they came from, relative to the folder.
        skipped: The pictures that gave none.
        fingerprint: SHA-256 over the pixels, whatever the files are called and in whatever order they come.
    """

    crops: Pixels
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    fingerprint: str


def collect_faces(
    source: Path,
    template: npt.ArrayLike | None,
    detector: str | Detector = "mtcnn",
    report: Reporter = SILENT,
    limit: int | None = None,
    *,
    by_content: bool = False,
) -> FaceSet:
    """Read `source` and keep every face in memory (150 kB each).

    Args:
        source: A picture, or a folder that is searched with its subfolders. What has exactly 224×224 px is an aligned
            crop and is used as it is; everything else is a photo, of which the largest face is aligned.
        template: (5, 3) the model's alignment template; None where no photo is to be aligned.
        detector: One of DETECTORS, or a detector.
        report: Told the progress, and what was left out.
        limit: Stop after so many faces.
        by_content: Read files in an order that their bytes decide, so that a limit takes the same ones whatever they
            are called; otherwise by name.

    Raises:
        CalibrationError: The folder holds no picture, or none of them gives a face; says why.
        ImageError: There is no such file, or the single file cannot be read.
        FaceError: The single photo has no face.
        UsageError: An unknown detector, or a limit below 1.
        MissingError: The detector's package is not installed.
    """
    crops, skipped = [], []
    for face in iterate_faces(source, template, detector, report, limit, by_content=by_content):
        if isinstance(face, Crop):
            crops.append(face)
        else:
            skipped.append(face)
    if not crops:
        raise CalibrationError(
            f"none of the {len(skipped)} pictures in {source} gives a face:\n{describe(skipped)}",
            allowed=f"photos with a face, or aligned crops of {CROP}x{CROP} px",
            run=f"face3d-trt calib {source} NEW_FOLDER --landmarks points.json    # with points that you know",
        )
    if skipped:
        report.warn(f"{len(skipped)} of {len(skipped) + len(crops)} pictures left out:\n{describe(skipped)}")
    pixels = np.stack([crop.pixels for crop in crops])
    return FaceSet(pixels, tuple(crop.name for crop in crops), tuple(skipped), pixels_fingerprint(pixels))


def iterate_faces(
    source: Path,
    template: npt.ArrayLike | None,
    detector: str | Detector = "mtcnn",
    report: Reporter = SILENT,
    limit: int | None = None,
    *,
    by_content: bool = False,
) -> Iterator[Crop | Skipped]:
    """Like `collect_faces`, one picture after the other, so that a folder of any size can be worked through.

    Raises:
        CalibrationError, ImageError, FaceError, UsageError, MissingError: As `collect_faces`; but a folder in which
            no picture gives a face is not an error here.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} faces leaves nothing", allowed="1 or more")
    chosen = find_detector(detector) if isinstance(detector, str) else detector
    source = Path(source)
    if not source.is_dir():
        yield Crop(source.name, _crop(source, source.name, template, chosen))
        return
    names = _pictures(source, report)
    if by_content:
        names = tuple(sorted(names, key=lambda name: _content(source / name)))
    found = 0
    for name in report.track(names, f"reading faces of {source}", total=len(names)):
        try:
            yield Crop(name, _crop(source / name, name, template, chosen))
        except (ImageError, FaceError) as error:
            yield Skipped(name, error.problem)
            continue
        found += 1
        if found == limit:
            return


def pixels_fingerprint(crops: Pixels) -> str:
    """SHA-256 over the pictures of (N, H, W, 3) as a bag: their order does not count, how often one comes does."""
    digests = (hashlib.sha256(np.ascontiguousarray(crop).data).hexdigest() for crop in crops)
    return fingerprint(crops.shape[1:], *sorted(digests))


def describe(skipped: Sequence[Skipped]) -> str:
    """A few lines `name: reason`, then a count of the rest."""
    lines = [f"  {each.name}: {each.reason}" for each in skipped[:_NAMED]]
    if len(skipped) > _NAMED:
        lines.append(f"  and {len(skipped) - _NAMED} more")
    return "\n".join(lines)


def _crop(path: Path, name: str, template: npt.ArrayLike | None, chosen: Detector) -> Pixels:
    """The aligned face of one file."""
    photo = read_photo(path)
    height, width = photo.pixels.shape[:2]
    if (height, width) == (CROP, CROP):
        return photo.pixels
    if min(height, width) < MIN_FACE_PX:
        raise FaceError(
            f"{name} has {width}x{height} px: too small to show a face", allowed=f"{MIN_FACE_PX} px and more"
        )
    faces = chosen.detect(photo.pixels, name, photo.scale)
    if not faces:
        raise FaceError(
            f"no face found in {name} ({width}x{height} px)",
            allowed=f"an upright face of at least {MIN_FACE_PX} px and 2 % of the picture's long side",
            run="face3d-trt calib --landmarks points.json, with five points that you know",
        )
    if template is None:
        raise FaceError(f"{name} is a photo, and there is no template to align it to", allowed="aligned crops only")
    return align(photo.pixels, main_face(faces).points, template).crop


def _content(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError:  # reading it as a picture will say why
        return ""


def _pictures(folder: Path, report: Reporter) -> tuple[str, ...]:
    """Names of the pictures in `folder`, relative, with `/`; tells which other files are ignored."""
    pictures, others = image_files(folder)
    names = [path.as_posix() for path in others]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    if not pictures:
        raise CalibrationError(
            f"{folder} holds no pictures" + (f", only {listed}" if names else ""),
            allowed=f"files that end in {', '.join(EXTENSIONS)}, in the folder or its subfolders",
            run="face3d-trt calib PHOTOS NEW_FOLDER    # makes aligned faces from a folder of photos",
        )
    if names:
        report.stage(f"ignored in {folder}, not ending in {', '.join(EXTENSIONS)}: {listed}")
    return tuple(path.as_posix() for path in pictures)
