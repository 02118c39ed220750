"""What a run leaves: a folder for each picture, and one line for each in the list of results.

The order that makes a kill harmless: the files of a picture are written into a folder under `.work`, that folder is
renamed to the picture's, and then the line is added. So what a line names is there and whole; a folder without a line
is of a picture whose turn was cut off, and is made again.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from face3d_trt.files import storage_errors

WORK = ".work"  # in the folder of results: what is being written
_TURNS = 8
RUN_KEY = "run"  # of the first line


@dataclass(frozen=True)
class Failure:
    """Why there is no result.

    Attributes:
        stage: Where it failed: source, decode, detect, products, write.
        reason: In words.
    """

    stage: str
    reason: str


def line(record: Mapping[str, Any]) -> bytes:
    """A record as it stands in the list."""
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def failed(name: str, failure: Failure, **facts: Any) -> dict[str, Any]:
    """The record of what gave no result."""
    return {"name": name, "status": "failed", **facts, "stage": failure.stage, "reason": failure.reason}


def done(name: str, files: Mapping[str, int], **facts: Any) -> dict[str, Any]:
    """The record of a result: its files with their sizes in bytes, in the folder `name`."""
    return {"name": name, "status": "done", **facts, "files": dict(files)}


def write_folder(target: Path, files: Mapping[str, bytes], work: Path) -> None:
    """Make the folder `target` with `files` in it, all of them at once.

    Args:
        target: A folder from an earlier turn under that name is replaced.
        files: Content by name.
        work: Where it is prepared: an own path on the same file system, which does not exist.

    Raises:
        StorageError: The disk is full, or it may not be written.
    """
    with storage_errors(target):
        try:
            os.makedirs(work)
            for name, content in files.items():
                with open(work / name, "xb", buffering=0) as file:
                    _write(file.fileno(), content)
            _rename(work, target)
        except OSError:
            shutil.rmtree(work, ignore_errors=True)
            raise


def clear_work(output: Path) -> None:
    """Remove what a killed run was writing."""
    shutil.rmtree(output / WORK, ignore_errors=True)


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def _rename(work: Path, target: Path) -> None:
    """Over a folder from an earlier turn; or from a twin, on a machine that Ray believes to be gone."""
    for turn in range(_TURNS):
        if _renamed(work, target):
            return
        old = work.with_name(f"{work.name}.old{turn}")
        with suppress(FileNotFoundError):
            os.rename(target, old)
        shutil.rmtree(old, ignore_errors=True)
    os.rename(work, target)


def _renamed(work: Path, target: Path) -> bool:
    """False: there is something already."""
    try:
        os.rename(work, target)
    except FileNotFoundError:
        os.makedirs(target.parent, exist_ok=True)
        return _renamed(work, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
