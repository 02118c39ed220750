"""Which picture brings processes down, when Ray tries a task again and again: the folder of results remembers."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from face3d_trt.files import storage_errors

_FOLDER = "tasks"  # in WORK: a folder for each task under way, in it a file for each attempt that did not end
_ENOUGH = 2  # attempts that ended at a picture; a node that is lost may have been at any


class Attempt:
    """One attempt at a task. After another that did not end, it notes each picture before that is worked on.

    Attributes:
        fatal: Names of pictures at which enough attempts have ended.
    """

    def __init__(self, mark: Path, before: Sequence[str]) -> None:
        self._mark, self._careful = mark, bool(before)
        self.fatal = frozenset(name for name, count in Counter(before).items() if name and count >= _ENOUGH)

    def at(self, name: str) -> None:
        """A picture is begun.

        Raises:
            StorageError: The disk is full.
        """
        if self._careful:
            with storage_errors(self._mark):
                self._mark.write_text(name)


@contextmanager
def attempt(work: Path, stage: str, names: Sequence[str]) -> Iterator[Attempt]:
    """An attempt at the pictures `names`.

    Args:
        work: Folder of half-written results, which all nodes see.
        stage: What is done with them.
        names: Of the task's pictures: the same at every attempt.

    Raises:
        StorageError: The disk is full.
    """
    folder = work / _FOLDER / hashlib.sha256("\0".join((stage, *names)).encode()).hexdigest()[:32]
    mark = folder / uuid.uuid4().hex
    with storage_errors(mark):
        folder.mkdir(parents=True, exist_ok=True)
        before = list[str]()
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # the other one has ended after all
                before.append(path.read_text())
        mark.touch()
    yield Attempt(mark, before)
    shutil.rmtree(folder, ignore_errors=True)
