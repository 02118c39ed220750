"""Files under their final name are always whole: written beside it, then renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from face3d_trt.errors import StorageError

_CHUNK = 1 << 20
_STORAGE_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EFBIG,
}


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn "disk full" and "may not write" into a StorageError that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE_ERRNOS:
            raise
        raise StorageError(
            f"cannot write {path}: {error.strerror}; nothing was left under that name",
            allowed="a folder on this machine that can be written, with enough free space",
            run=f"df -h {path.parent} && ls -ld {path.parent}",
        ) from error


@contextlib.contextmanager
def write_beside(path: Path) -> Iterator[Path]:
    """Give a temporary path with the suffix of `path`, in the same folder; on success rename it to `path`.

    On any error, Ctrl-C included, the temporary file goes and a former `path` stays as it was.

    Raises:
        StorageError: The folder cannot be made or written, or the disk is full.
    """
    path = Path(path)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            os.chmod(temporary, 0o666 & ~_umask())
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 under `path`, whole or not at all."""
    with write_beside(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fingerprint(*parts: object) -> str:
    """SHA-256 over the texts of `parts`, in order: a key for "the same inputs"."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode()
        digest.update(str(len(text)).encode() + b":" + text)
    return digest.hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
