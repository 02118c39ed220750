"""A room for NVIDIA ModelOpt to work in: its files, its console noise and its progress bars stay inside."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from face3d_trt.errors import BuildError, Face3DError
from face3d_trt.files import storage_errors
from face3d_trt.optional import require

_LOGGERS = ("modelopt.onnx", "modelopt.onnx.autocast")
_DEFAULT_SEVERITY = 2  # ONNX Runtime: warnings and worse


@dataclass
class Room:
    """What a pass has while it runs.

    Args:
        folder: Temporary, gone afterwards whatever happens.
        lines: What ModelOpt logged so far.
    """

    folder: Path
    lines: list[str] = field(default_factory=list)


class _Collector(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def modelopt_room(purpose: str) -> Iterator[Room]:
    """Give a temporary folder and keep ModelOpt quiet meanwhile.

    Args:
        purpose: What the work is, for messages: "AutoCast", "INT8 calibration".

    Raises:
        MissingError: ModelOpt is not installed.
        StorageError: The temporary folder's disk is full.
        BuildError: ModelOpt failed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory(prefix="face3d-trt-") as name, storage_errors(Path(name)):
            room = Room(Path(name))
            with _hushed(room.lines, purpose), _temporary_files_in(room.folder):
                try:
                    yield room
                except (Face3DError, OSError, MemoryError):
                    raise
                except Exception as error:  # ModelOpt and ONNX Runtime raise whatever they like
                    last = "\n    ".join(room.lines[-5:])
                    raise BuildError(
                        f"{purpose} by ModelOpt failed: {type(error).__name__}: {error}\n    {last}",
                        run="face3d-trt export, then build again",
                    ) from error


@contextlib.contextmanager
def _hushed(lines: list[str], purpose: str) -> Iterator[None]:
    parent = logging.getLogger("modelopt")  # ModelOpt throws out what is attached to its own loggers
    collector = _Collector(lines)
    parent.addHandler(collector)
    propagate, parent.propagate = parent.propagate, False
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            patching: Any = require("modelopt.onnx.quantization.ort_patching", "quantize", purpose)
            bar = patching.tqdm
            patching.tqdm = functools.partial(bar, disable=True)
            try:
                yield
            finally:
                patching.tqdm = bar
    finally:
        parent.removeHandler(collector)
        parent.propagate = propagate
        for logger in map(logging.getLogger, _LOGGERS):
            logger.handlers.clear()  # they write to the stream that has just gone
        _restore_severity()


def _restore_severity() -> None:
    # AutoCast silences ONNX Runtime for the whole process.
    with contextlib.suppress(ImportError):
        import onnxruntime

        onnxruntime.set_default_logger_severity(_DEFAULT_SEVERITY)


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    # ModelOpt makes files with mkstemp and removes them only when all goes well.
    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
