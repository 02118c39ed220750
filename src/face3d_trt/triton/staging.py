"""Files and folders that get their name when they are whole."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from face3d_trt.errors import PlanError, StorageError
from face3d_trt.files import sha256_file
from face3d_trt.report import SILENT
from face3d_trt.runtime.plans import open_plan

if TYPE_CHECKING:
    from face3d_trt.records import Manifest
    from face3d_trt.report import Reporter

_PIECE = 16 << 20
_STAGED = re.compile(r"[a-z0-9_]{8}")  # what mkdtemp puts behind the prefix
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


class Staged:
    """An empty folder beside `target`, under a hidden name; gone at the end unless `swap_in` gave it its own.

    Triton takes a hidden folder in a model's folder for no version.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target

    def __enter__(self) -> Staged:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=f".{self.target.name}.", dir=self.target.parent))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def clear_leftovers(*targets: Path) -> None:
    """Remove what a run left that was killed."""
    for target in targets:
        if target.parent.is_dir():
            for left in target.parent.glob(f".{glob.escape(target.name)}.*"):
                if not _STAGED.fullmatch(left.name[len(target.name) + 2 :]):
                    continue
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)


def swap_in(staged: Staged) -> None:
    """Give a staged folder its name. What had the name goes, and comes back if the renaming fails."""
    os.chmod(staged.path, 0o777 & ~_umask())
    if not os.path.lexists(staged.target):
        os.rename(staged.path, staged.target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{staged.target.name}.", dir=staged.target.parent))
    try:
        os.rename(staged.target, aside / "former")
        try:
            os.rename(staged.path, staged.target)
        except BaseException:
            os.rename(aside / "former", staged.target)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def plan_beside(source: Path, target: Path, link: bool, report: Reporter) -> Iterator[tuple[Path, Manifest]]:
    """A plan's bytes as they were checked, in a hidden file beside `target`, gone at the end unless it was moved.

    A file, as Triton takes every folder in the repository for a model, and a copy takes long enough to be killed.

    Args:
        source: The plan.
        target: Beside which; its folder is made.
        link: A hard link, not a copy.
        report: Shows how far the copy is.

    Yields:
        The file and the plan's manifest.

    Raises:
        PlanError: The plan is not what its manifest says.
        StorageError: The file system cannot link these two.
    """
    manifest, data = open_plan(source)
    with _hidden_file(target) as path:
        if not link:
            _write(path, data, f"copying {source.name}", report)
        else:
            path.unlink()
            _link(source, path)
            if sha256_file(path) != manifest.plan_sha256:
                raise PlanError(f"{source} was replaced while it was linked", run="the same command again")
        yield path, manifest


@contextlib.contextmanager
def bytes_beside(data: bytes, target: Path) -> Iterator[Path]:
    """Likewise a small file."""
    with _hidden_file(target) as path:
        _write(path, data, "writing", SILENT)
        yield path


@contextlib.contextmanager
def _hidden_file(target: Path) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _write(path: Path, data: bytes, text: str, report: Reporter) -> None:
    """Into a file that is there, and onto the disk."""
    with open(path, "wb") as file:
        for start in range(0, len(data), _PIECE):
            report.progress(text, start, len(data))
            file.write(data[start : start + _PIECE])
        file.flush()
        os.fsync(file.fileno())
    os.chmod(path, 0o666 & ~_umask())
    report.progress(text, len(data), len(data))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        raise StorageError(
            f"cannot link {source} into the repository: {error.strerror}",
            allowed="a plan on the repository's own file system, which has hard links and lets you make them",
            run="the same command without --link",
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
