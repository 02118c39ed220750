"""The list of results: one line for each picture, in the order of the sources, taken up again after any end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from face3d_trt.errors import UsageError
from face3d_trt.files import output_lock, storage_errors, write_beside
from face3d_trt.reconstruct.options import RESULTS
from face3d_trt.reconstruct.results import RUN_KEY, clear_work, line
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.reconstruct.sources import Item

_SYNC_S = 2.0  # between two moments at which lines are forced onto the disk
_SAME = "the same command, with --resume"


@dataclass(frozen=True)
class Former:
    """What an earlier run left.

    Attributes:
        names: Of the pictures that are done.
        counts: How many, by status.
    """

    names: frozenset[str]
    counts: Mapping[str, int]

    def frames(self, items: Iterable[Item]) -> int:
        """How many of them are frames of videos, and videos that failed: what `items` do not count."""
        counted = sum(item.count for item in items if item.kind != "video" and item.name in self.names)
        return sum(self.counts.values()) - counted


class ResultList:
    """The file. Lines come with numbers and are written in their order, whatever order they come in.

    Args:
        path: Of the file, which exists and ends with a whole line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with storage_errors(path):
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size
        self._pending: dict[int, bytes] = {}
        self._next = 0
        self._synced = 0.0
        self._syncing: Thread | None = None

    def __len__(self) -> int:
        """How many groups wait for one before them."""
        return len(self._pending)

    @property
    def next(self) -> int:
        """The number that is written next."""
        return self._next

    def put(self, number: int, lines: bytes) -> None:
        """Write what is whole and in order; keep the rest until its turn.

        Raises:
            StorageError: The disk is full; the file then ends with a whole line.
        """
        self._pending[number] = lines
        ready = []
        while self._next in self._pending:
            ready.append(self._pending.pop(self._next))
            self._next += 1
        if data := b"".join(ready):
            self._append(data)

    def sync(self, now: float) -> None:
        """Force what is written onto the disk every few seconds, in a thread, since that may take a while.

        Args:
            now: Seconds of a monotonic clock.
        """
        if now - self._synced >= _SYNC_S and (self._syncing is None or not self._syncing.is_alive()):
            self._synced = now
            self._syncing = Thread(target=os.fsync, args=(self._file,), daemon=True)
            self._syncing.start()

    def close(self) -> None:
        """Onto the disk, and closed."""
        if self._syncing:
            self._syncing.join()
        os.fsync(self._file)
        os.close(self._file)

    def _append(self, data: bytes) -> None:
        with storage_errors(self._path):
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._file, view) :]
            except OSError:
                os.ftruncate(self._file, self._size)
                raise
        self._size += len(data)


@contextmanager
def results_of(
    path: Path,
    output: Path,
    run: Mapping[str, Any],
    resume: bool,
    report: Reporter = SILENT,
    order: Mapping[str, int] | None = None,
) -> Iterator[tuple[ResultList, Former]]:
    """Hold the list of results of a run, new or taken up again.

    Args:
        path: Of the list.
        output: Folder of the results.
        run: What decides the results; stands in the first line.
        resume: Whether there may be results already.
        report: Warned of what has to be made again.
        order: Place of each name in the sources, into which lines that were taken up again are brought at the end.

    Raises:
        UsageError: There is something in `output` and `resume` is not asked for; or it came from another run.
        StorageError: It is in use, or cannot be written.
    """
    if output.exists() and not output.is_dir():
        raise UsageError(f"-o {output} is not a folder", allowed="a folder, which is made where there is none")
    with ExitStack() as stack:
        for held in _held(path, output):
            stack.enter_context(output_lock(held, "run"))
        if not resume:
            _refuse_leftovers(path, output)
        former = _take_up(path, output, run, report) if path.exists() else _begin(path, run)
        clear_work(output)
        results = ResultList(path)
        try:
            yield results, former
        finally:
            results.close()
            clear_work(output)
            if results.next == 0 and not resume:  # it never began: nothing is left that would have to be resumed
                path.unlink(missing_ok=True)
        if resume and order:
            in_order(path, order)


def in_order(path: Path, order: Mapping[str, int]) -> None:
    """Bring the lines into the order of the sources, where pictures were made again or came later.

    Args:
        path: Of the list.
        order: Place of each name; a frame has that of its video.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    keys = [_place(_name(each), order) for each in lines[1:]]
    if keys == sorted(keys):
        return
    ranked = [each for _, each in sorted(zip(keys, lines[1:], strict=True), key=lambda pair: pair[0])]
    _replace(path, [lines[0], *ranked])


def _place(name: str, order: Mapping[str, int]) -> tuple[int, int, str]:
    if name in order:
        return order[name], 1, ""  # a video's own line stands behind its frames
    video = name.rpartition("/")[0]
    return (order[video], 0, name) if video in order else (len(order), 0, name)


def _held(path: Path, output: Path) -> tuple[Path, ...]:
    """What no two runs may write to at a time: the folder, and the list where that lies elsewhere."""
    usual = output / RESULTS
    return (usual,) if os.path.abspath(path) == os.path.abspath(usual) else (usual, path)


def _refuse_leftovers(path: Path, output: Path) -> None:
    locks = {f".{each.name}.lock" for each in _held(path, output)}
    left = [each.name for each in output.iterdir() if each.name not in locks] if output.is_dir() else []
    if left or path.exists():
        raise UsageError(
            f"{path if path.exists() else output} holds {'results' if path.exists() else left[0]} already",
            allowed="a new or empty folder; or --resume, which goes on where the earlier run ended",
            run=f"{_SAME}    # or -o with another folder",
        )


def _begin(path: Path, run: Mapping[str, Any]) -> Former:
    _replace(path, [line({RUN_KEY: run})])
    return Former(frozenset(), {})


def _take_up(path: Path, output: Path, run: Mapping[str, Any], report: Reporter) -> Former:
    """Check what is there; lines that are torn, double, or whose files are not there any more, are dropped."""
    with storage_errors(path):
        lines = path.read_bytes().splitlines(keepends=True)
    kept, names, counts = list[bytes](), set[str](), dict[str, int]()
    torn = gone = 0
    for number, each in enumerate(lines):
        record = _record(each)
        if number == 0:
            _check_run(path, record, run)
            kept.append(each)
        elif record is None or record["name"] in names:
            torn += 1
        elif not _is_there(output, record):
            gone += 1
        else:
            kept.append(each)
            names.add(record["name"])
            status = str(record["status"])
            if status != "video":  # whose frames are counted
                counts[status] = counts.get(status, 0) + images_of(record)
    if torn or gone:
        report.warn(f"{path}: {torn} torn lines, {gone} whose files are gone or changed: these pictures are made again")
        _replace(path, kept)
    return Former(frozenset(names), counts)


def images_of(record: Mapping[str, Any]) -> int:
    """How many pictures a record is about."""
    rows = record.get("rows")
    return int(rows[1] - rows[0]) if rows else 1


def _check_run(path: Path, record: dict[str, Any] | None, run: Mapping[str, Any]) -> None:
    former = record.get(RUN_KEY) if record else None
    if not isinstance(former, dict):
        raise UsageError(
            f"{path} is not a list of results of this program",
            allowed="what reconstruct wrote",
            run="-o another folder",
        )
    for key in (*run, *former):
        if former.get(key) != run.get(key):
            raise UsageError(
                f"{path} is of a run with {key} {former.get(key)}; now it is {run.get(key)}",
                allowed="the options of the run that is to go on; devices, workers, batch and queue may change",
                run="the command of that run with --resume; or -o with another folder",
            )


def _record(text: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(text) if text.endswith(b"\n") else None
    except ValueError:
        return None
    if not isinstance(record, dict) or not (RUN_KEY in record or ("name" in record and "status" in record)):
        return None
    return record


def _name(text: bytes) -> str:
    return str(json.loads(text)["name"])


def _is_there(output: Path, record: Mapping[str, Any]) -> bool:
    try:
        return all(
            os.stat(output / record["name"] / name).st_size == size for name, size in record.get("files", {}).items()
        )
    except OSError:
        return False


def _replace(path: Path, lines: Iterable[bytes] | Sequence[bytes]) -> None:
    with write_beside(path) as beside:
        beside.write_bytes(b"".join(lines))
