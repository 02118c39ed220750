"""Five points for each picture, from a file that another detector or a person made."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from face3d_trt.errors import UsageError
from face3d_trt.faces.align import POINTS, Floats

_FORMAT = (
    'JSON {"a.jpg": [[x, y], ... five points], ...} or CSV lines a.jpg,x1,y1,...,x5,y5, in px of the upright picture: '
    + ", ".join(POINTS)
)


def read_landmarks(path: Path) -> dict[str, Floats]:
    """Read the points of many pictures and check every entry once.

    JSON: an object from file name to five [x, y] pairs. CSV: eleven columns, the file name and x, y of each point; a
    header line is passed over. Names are relative to the folder of pictures, with `/`, or bare file names.

    Returns:
        File name → (5, 2) float64 px.

    Raises:
        UsageError: The file is missing, is neither, holds nothing, names a picture twice, or has an entry that is not
            five finite points; the message names the entry.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _problem(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _problem(path, "is not UTF-8 text") from error
    pairs = _csv_pairs(path, text) if path.suffix.lower() == ".csv" else _json_pairs(path, text)
    points: dict[str, Floats] = {}
    for name, values in pairs:
        if name in points:
            raise _problem(path, f"names {name} twice")
        points[name] = _five_points(path, name, values)
    if not points:
        raise _problem(path, "holds no points")
    return points


def _json_pairs(path: Path, text: str) -> Iterable[tuple[str, object]]:
    """The entries in order, repeated names included, which `json` by itself would drop."""
    try:
        pairs = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    except ValueError as error:
        raise _problem(path, f"is not JSON: {error}") from error
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise _problem(path, "is not a JSON object from file name to points")
    return pairs


def _csv_pairs(path: Path, text: str) -> Iterable[tuple[str, object]]:
    columns = 1 + 2 * len(POINTS)
    for line, row in enumerate(csv.reader(text.splitlines()), start=1):
        if not row or (line == 1 and not any(_is_number(value) for value in row[1:])):
            continue
        if len(row) != columns:
            raise _problem(path, f"has {len(row)} columns in line {line} instead of {columns}")
        if not all(_is_number(value) for value in row[1:]):
            raise _problem(path, f"has something other than numbers in line {line}")
        yield row[0], [[float(x), float(y)] for x, y in zip(row[1::2], row[2::2], strict=True)]


def _five_points(path: Path, name: str, values: object) -> Floats:
    try:
        points = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _problem(path, f"does not have five points of two numbers under {name}") from error
    if points.shape != (len(POINTS), 2):
        raise _problem(path, f"has an array of shape {points.shape} under {name} instead of five points")
    if not np.isfinite(points).all():
        raise _problem(path, f"has a point that is not finite under {name}")
    return points


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _problem(path: Path, text: str) -> UsageError:
    return UsageError(f"the landmarks file {path} {text}", allowed=_FORMAT)
