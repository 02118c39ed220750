"""Files under their final name are always whole: written beside it, then renamed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from face3d_trt.errors import StorageError

_CHUNK = 1 << 20
_WRITE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # no reading ever gives these
_STORAGE_ERRNOS = _WRITE_ERRNOS | {
    errno.EACCES,
    errno.EEXIST,
    errno.EIO,
    errno.EISDIR,
    errno.ELOOP,
    errno.EMLINK,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.EPERM,
    errno.ESTALE,
    errno.ETXTBSY,
}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}  # some network file systems


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn "disk full" and "may not write" into a StorageError that names `path`.

    The block may read other files: their errors pass through as they are.
    """
    try:
        yield
    except OSError as error:
        if not _is_about(error, path):
            raise
        raise _storage_error(path, error) from error


@contextlib.contextmanager
def write_beside(path: Path) -> Iterator[Path]:
    """Give a temporary path with the suffix of `path`, in the same folder; on success rename it to `path`.

    On any error, Ctrl-C included, the temporary file goes and a former `path` stays as it was.

    Raises:
        StorageError: The folder cannot be made or written, the disk is full, or `path` is a folder.
    """
    path = Path(path)
    with _temporary(path) as temporary:
        try:
            yield temporary
        except OSError as error:
            if error.errno in _WRITE_ERRNOS or (error.errno in _STORAGE_ERRNOS and temporary in _names(error)):
                raise _storage_error(path, error) from error
            raise
        with _own(path):
            _complete(temporary)
            os.replace(temporary, path)


def write_together(contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write files that belong together; the last one vouches for the others by their hashes.

    All are complete on the disk before the first gets its name, so whatever fails while writing (a full disk, Ctrl-C)
    leaves every former file as it was. The renames come one after the other: a machine that stops between two of them
    leaves new files beside the former last one. Its hashes do not match then, and whoever reads it has to check them.

    Raises:
        StorageError: As `write_beside`.
    """
    with contextlib.ExitStack() as stack:
        temporaries = []
        for path, data in contents:
            temporary = stack.enter_context(_temporary(path))
            with _own(path):
                temporary.write_bytes(data)
                _complete(temporary)
            temporaries.append(temporary)
        for temporary, (path, _) in zip(temporaries, contents, strict=True):
            with _own(path):
                os.replace(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 under `path`, whole or not at all."""
    write_together([(Path(path), text.encode())])


def check_output(path: Path) -> None:
    """Find out before long work whether a file can be written under `path`; leaves nothing, no new folder either.

    Raises:
        StorageError: The folder cannot be made or written, the name is too long, or `path` is a folder.
    """
    path = Path(path)
    missing = [folder for folder in path.parents if not os.path.lexists(folder)]
    try:
        with _temporary(path), _own(path):
            if os.path.isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    finally:
        with contextlib.suppress(OSError):  # never made, or somebody uses it already
            for folder in missing:
                folder.rmdir()


@contextlib.contextmanager
def output_lock(path: Path, what: str = "build") -> Iterator[None]:
    """Hold `path` for this process's thread alone, without a trace: for work whose several outputs have to agree.

    Where the file system has no locks, nothing is held.

    Args:
        path: What is held.
        what: Of it is running where it is held.

    Raises:
        StorageError: Another process or thread holds it.
    """
    beside = path.with_name(f".{path.name}.lock")
    with contextlib.ExitStack() as stack:
        with _own(path):
            beside.parent.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                stack.callback(os.close, descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise StorageError(
                        f"cannot write {path}: another {what} of it is running; nothing was changed",
                        allowed=f"one {what} of the same output at a time",
                        run="the same command once the other has ended, or with another output",
                    ) from error
                except OSError as error:
                    if error.errno not in _NO_LOCKS:
                        raise
                if _is_at(descriptor, beside):  # its former holder may have removed it meanwhile
                    break
        stack.callback(beside.unlink, missing_ok=True)  # before the lock goes
        yield


def open_regular(path: Path | str) -> io.BufferedReader:
    """Open a file for reading; never a pipe or a device, where opening or reading might not end.

    Raises:
        OSError: It is not there, cannot be read, or is something else than a file.
    """

    def at_once(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "neither a file nor a link to one", name)
        return descriptor

    return open(path, "rb", opener=at_once)


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


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """An empty file in the folder of `path`, gone afterwards unless it was renamed."""
    with _own(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    try:
        os.close(handle)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def _own(path: Path) -> Iterator[None]:
    """Around nothing but this module's own steps towards `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE_ERRNOS and error.errno != errno.ENOENT:  # the folder was removed meanwhile
            raise
        raise _storage_error(path, error) from error


def _complete(temporary: Path) -> None:
    os.chmod(temporary, 0o666 & ~_umask())
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())


def _is_about(error: OSError, path: Path) -> bool:
    if error.errno in _WRITE_ERRNOS:
        return True
    if error.errno not in _STORAGE_ERRNOS | {errno.ENOENT}:  # ENOENT: /proc, where no folder can be made
        return False
    folder = path.parent.absolute()
    names = [name.absolute() for name in _names(error)]
    return any(folder == name or folder in name.parents or name in folder.parents for name in names)


def _names(error: OSError) -> list[Path]:
    return [
        Path(os.fsdecode(name))
        for name in (error.filename, error.filename2)
        if isinstance(name, str | bytes | os.PathLike)
    ]


def _storage_error(path: Path, error: OSError) -> StorageError:
    if os.path.isdir(path):
        outcome = "no half-written file was left"
    elif os.path.lexists(path):
        outcome = "what stood there before is untouched"
    else:
        outcome = "nothing was left under that name"
    return StorageError(
        f"cannot write {path}: {error.strerror}; {outcome}",
        allowed="a file's name in a folder on this machine that can be written, with enough free space",
        run=f"df -h {path.parent} && ls -ld {path.parent}",
    )


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
