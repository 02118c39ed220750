"""The versions of a model in a repository, as Triton counts them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from face3d_trt.errors import UsageError
from face3d_trt.triton.options import MOST_VERSION

_VERSION = re.compile(r"[1-9]\d{0,18}")  # one with a zero in front is no version to Triton


def versions(folder: Path) -> list[int]:
    """Those that are there, from the lowest; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(int(each.name) for each in entries if _VERSION.fullmatch(each.name) and each.is_dir())
    except FileNotFoundError:
        return []


def next_version(there: list[int], folder: Path) -> int:
    """The one after the highest, so that it is the latest.

    Raises:
        UsageError: There is none.
    """
    version = max(there, default=0) + 1
    if version > MOST_VERSION:
        raise UsageError(f"no version comes after the highest in {folder}", allowed="--version with a free number")
    return version
