"""What there is to reconstruct: pictures, frames of videos and rows of arrays, in an order that never changes."""

from __future__ import annotations

import glob
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from face3d_trt.errors import UsageError
from face3d_trt.faces.images import EXTENSIONS, image_files
from face3d_trt.files import open_regular
from face3d_trt.reconstruct.options import RESULTS
from face3d_trt.reconstruct.results import RUN_KEY, WORK

VIDEOS = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")
ARRAYS = (".npy", ".npz")
LISTS = (".lst", ".txt")
_MAGIC = set("*?[")
_OURS = (WORK, RESULTS)  # in the folder of results
Kind = Literal["image", "video", "rows", "not"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to reconstruct.

    Attributes:
        name: Unique in a run, with `/`; the folder of its results.
        path: Of the file.
        kind: A picture; a video (its frames come as items of their own); rows of an array of crops; "not": neither.
        start: First row, or number of the frame.
        count: Rows.
        shape: (height, width) of the rows.
        offset: Of row `start` in the file, bytes.
        reason: Why it cannot be used, where that is known already.
    """

    name: str
    path: str
    kind: Kind = "image"
    start: int = 0
    count: int = 1
    shape: tuple[int, int] = (0, 0)
    offset: int = 0
    reason: str = ""


@dataclass
class _Names:
    """Names of items: the path as it was given, without what leads upwards, and unique."""

    taken: dict[str, str] = field(default_factory=dict)

    def name(self, shown: str, path: str) -> str | None:
        """A name for the file at `path`, of which `shown` was given; None: the file is in the run already."""
        place = os.path.abspath(path)
        parts = [part for part in PurePosixPath(shown).parts if part not in ("/", ".")]
        base = "/".join("_" if part == ".." else part for part in parts)
        if parts and parts[0] in _OURS:
            base = f"_{base}"
        name, again = base, 1
        while name in self.taken:
            if self.taken[name] == place:
                return None
            again += 1
            name = f"{base}~{again}"
        self.taken[name] = place
        return name


def find_items(
    sources: Sequence[str], output: Path, *, rows: int, arrays: bool, one_row: bool = False
) -> tuple[Item, ...]:
    """Everything in `sources`: in the order they are given, folders sorted by name.

    A source is a folder, which is searched with its subfolders; a glob in quotes (`'photos/**/*.jpg'`); a picture; a
    video; an array file; or a list (.txt, .lst) with one path a line, relative to the list's folder. A picture's name
    is its path below the folder, where there is one folder and nothing else, and its path as given otherwise. Hidden
    files, linked folders, the folder of results, and those of other runs inside of a source, are passed over. A file
    that comes twice counts once.

    Args:
        sources: As given.
        output: Folder of results, which may lie inside a source.
        rows: The most rows of an array in one item.
        arrays: Whether .npy and .npz files hold aligned crops that are to be read.
        one_row: Whether each row of an array is an item of its own.

    Raises:
        UsageError: A source is missing, or a list cannot be read.
        ImageError: A folder may not be listed.
    """
    names, found = _Names(), list[Item]()
    for shown, path in _files(sources, output):
        name = names.name(shown, path)
        if name is not None:
            found.extend(_items(name, path, 1 if one_row else rows, arrays))
    return tuple(found)


def _files(sources: Sequence[str], output: Path) -> Iterator[tuple[str, str]]:
    """(what the name is made of, path)."""
    alone = len(sources) == 1
    for source in sources:
        if os.path.isdir(source):
            yield from _folder(source, "" if alone else source, output)
        elif os.path.lexists(source):
            yield from _list(source) if source.lower().endswith(LISTS) else [(source, source)]
        elif _MAGIC & set(source):
            hits = sorted(glob.glob(source, recursive=True))
            if not hits:
                raise UsageError(f"nothing fits {source}", allowed="a pattern in quotes that files fit")
            for hit in hits:
                if not os.path.isdir(hit) and not _is_in(hit, output):
                    yield hit, hit
        else:
            raise UsageError(
                f"{source} is not there",
                allowed="folders, pictures, videos, arrays of crops, lists (.txt), globs in quotes",
            )


def _folder(source: str, prefix: str, output: Path) -> Iterator[tuple[str, str]]:
    pictures, others = image_files(Path(source))
    results = {path.parent for path in others if path.name == RESULTS and _is_list(os.path.join(source, path))}
    results.discard(Path())  # the source itself: whoever names that wants it
    for path in sorted((*pictures, *others)):
        full = os.path.join(source, path)
        if not _is_in(full, output) and results.isdisjoint(path.parents):
            yield os.path.join(prefix, path), full


def _is_in(path: str, folder: Path) -> bool:
    return os.path.abspath(path).startswith(os.path.join(os.path.abspath(folder), ""))


def _is_list(path: str) -> bool:
    """Whether a file is the list of results of a run."""
    start = f'{{"{RUN_KEY}":'.encode()
    try:
        with open_regular(path) as file:
            return file.read(len(start)) == start
    except OSError:
        return False


def _list(source: str) -> Iterator[tuple[str, str]]:
    try:
        text = Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the list {source} cannot be read: {error}", allowed="a text file, one path a line"
        ) from error
    folder = os.path.dirname(source)
    for line in text.splitlines():
        if line.strip():
            yield line.strip(), os.path.join(folder, line.strip())


def _items(name: str, path: str, rows: int, arrays: bool) -> Iterable[Item]:
    suffix = os.path.splitext(path)[1].lower()
    if suffix in VIDEOS:
        return [Item(name, path, "video")]
    if suffix in ARRAYS and arrays:
        try:
            return list(_blocks(name, path, rows))
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            return [Item(name, path, "not", reason=f"cannot read {path}: {error}")]
    if suffix in EXTENSIONS:
        return [Item(name, path)]
    if suffix in ARRAYS:
        return [Item(name, path, "not", reason=f"{path} is an array: --detector aligned reads those, of crops")]
    return [Item(name, path, "not", reason=f"{path} is neither a picture nor a video, going by its name")]


def _blocks(name: str, path: str, rows: int) -> Iterator[Item]:
    for inner, (count, height, width), offset in _arrays(path):
        base = f"{name}/{inner}" if inner else name
        for start in range(0, count, rows):
            part = min(rows, count - start)
            label = f"{start:08}" if rows == 1 else f"{start:08}-{start + part:08}"
            place = offset + start * height * width * 3
            yield Item(f"{base}/{label}", path, "rows", start, part, (height, width), place)


def _arrays(path: str) -> Iterator[tuple[str, tuple[int, int, int], int]]:
    """(name inside of the file, (rows, height, width), offset of the first row) of each array of crops."""
    with open_regular(path) as file:
        if path.lower().endswith(".npy"):
            yield "", _header(file, path), file.tell()
            return
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if info.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{info.filename} in it is compressed; np.savez does not")
                with archive.open(info) as member:
                    sizes = _header(member, f"{path}:{info.filename}")
                    inside = member.tell()
                file.seek(info.header_offset + 26)  # lengths of name and extra field, in the member's own header
                lengths = np.frombuffer(file.read(4), "<u2")
                start = info.header_offset + 30 + int(lengths.sum()) + inside
                yield info.filename.removesuffix(".npy"), sizes, start


def _header(file: Any, what: str) -> tuple[int, int, int]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, transposed, dtype = read(file)
    if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3 or (transposed and shape[0] > 1) or 0 in shape:
        raise ValueError(f"{what} is {dtype} of shape {shape}, not crops: (N, height, width, 3) uint8 RGB")
    return int(shape[0]), int(shape[1]), int(shape[2])
