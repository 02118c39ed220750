"""Where measurements are kept between builds: TensorRT's timing cache, one file for each GPU, driver and TensorRT."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from face3d_trt.errors import StorageError
from face3d_trt.files import check_output, output_lock, write_beside

if TYPE_CHECKING:
    from face3d_trt.engine.flavour import Flavour
    from face3d_trt.report import Reporter

NO_CACHE: Literal["none"] = "none"  # what --timing-cache takes for "keep none"
_UNSAFE = re.compile(r"[^A-Za-z0-9.]+")


@dataclass(frozen=True)
class Timings:
    """The timing cache of one build.

    Args:
        path: Its file; None where none is kept.
        data: What it held when the build began, b"" for a new one; None where none is kept.
    """

    path: Path | None = None
    data: bytes | None = None

    def keep(self, measured: bytes | None, merge: Callable[[bytes, bytes], bytes], report: Reporter) -> None:
        """Write what the build measured. A failure costs the next build time and this one nothing.

        Args:
            measured: The cache after the build.
            merge: Unites it with what another build has written meanwhile.
            report: Warned when it cannot be written.
        """
        if self.path is None or measured is None:
            return
        try:
            with output_lock(self.path):
                now = self.path.read_bytes() if self.path.exists() else b""
                if now and now != self.data:
                    measured = merge(measured, now)
                with write_beside(self.path) as temporary:
                    temporary.write_bytes(measured)
        except (StorageError, OSError) as error:
            problem = error.problem if isinstance(error, StorageError) else f"cannot read {self.path}: {error.strerror}"
            report.warn(f"{problem}. The plan is there; the next build measures again")


def open_timings(asked: Path | Literal["none"] | None, flavour: Flavour, report: Reporter) -> Timings:
    """The timing cache that a build uses.

    Args:
        asked: A file; "none"; or None for the file in the user's cache folder.
        flavour: Which TensorRT; TensorRT-RTX has no timing cache.
        report: Warned when the user's cache folder cannot be used.

    Raises:
        StorageError: The file that was named cannot be read or written.
    """
    if asked == NO_CACHE or not flavour.has_timing_cache:
        return Timings()
    if asked is not None:
        return read_timings(asked)
    try:
        return read_timings(default_path(flavour))
    except (StorageError, RuntimeError) as error:  # RuntimeError: nobody knows where home is
        problem = error.problem if isinstance(error, StorageError) else str(error)
        report.warn(f"no timing cache: {problem}. Every build measures anew; --timing-cache FILE keeps it elsewhere")
        return Timings()


def default_path(flavour: Flavour) -> Path:
    """In XDG_CACHE_HOME or ~/.cache: measurements of one GPU model, driver and TensorRT version mean nothing to others.

    Raises:
        RuntimeError: There is no home.
    """
    gpu = flavour.gpu
    facts = (gpu.name, gpu.compute_capability, f"driver {gpu.driver}") if gpu else ("no GPU",)
    parts = (_UNSAFE.sub("-", text).strip("-.") for text in (*facts, f"{flavour.name} {flavour.version}"))
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = home if home.is_absolute() else Path.home() / ".cache"  # as the XDG specification has it
    return folder / "face3d-trt" / "timing" / ("_".join(parts) + ".cache")


def read_timings(path: Path) -> Timings:
    """What a file holds, or that it will be a new one.

    Raises:
        StorageError: It cannot be read or written.
    """
    check_output(path)
    try:
        return Timings(path, path.read_bytes())
    except FileNotFoundError:
        return Timings(path, b"")
    except OSError as error:
        raise StorageError(
            f"cannot read the timing cache {path}: {error.strerror}",
            allowed="a file of an earlier build, or a new name",
            run=f"ls -l {path}",
        ) from error
