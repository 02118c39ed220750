"""Calls of `face3d-trt` as a user makes them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

TITLE = "face3d-trt"


@dataclass(frozen=True)
class Called:
    """How a command ended.

    Attributes:
        command: The line, as documents show it.
        code: Exit code.
        stdout: What it printed as its result.
        stderr: Its progress and warnings.
        seconds: Wall clock, the start of the interpreter included.
    """

    command: str
    code: int
    stdout: str
    stderr: str
    seconds: float


def face3d(*words: str | Path, folder: Path, check: bool = True) -> Called:
    """Run a command line.

    Args:
        words: After `face3d-trt`; a Path is named as seen from `folder`.
        folder: To run in.
        check: Whether an exit code other than 0 is an error.

    Raises:
        RuntimeError: It ended with another exit code, and `check` was set.
    """
    texts = [os.path.relpath(word, folder) if isinstance(word, Path) else word for word in words]
    print(f"$ {TITLE} {shlex.join(texts)}", flush=True)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "face3d_trt", *texts], cwd=folder, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begun
    print(done.stdout + done.stderr, flush=True)
    if check and done.returncode:
        raise RuntimeError(f"{TITLE} {texts[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return Called(f"{TITLE} {shlex.join(texts)}", done.returncode, done.stdout, done.stderr, seconds)


def shown(command: str, folders: tuple[str, ...] = ("graphs", "plans", "calibration")) -> str:
    """A command line for a document: as seen from the folder of results, wherever its files lay on that machine.

    Args:
        command: As it was run there.
        folders: What such a folder is named; a path that has none of them is taken for one of a graph.
    """
    return shlex.join(_seen(word, folders) for word in shlex.split(command))


def _seen(word: str, folders: tuple[str, ...]) -> str:
    path = PurePosixPath(word)
    if not (path.is_absolute() or ".." in path.parts):
        return word
    places = [index for index, part in enumerate(path.parts) if part in folders]
    return str(PurePosixPath(*path.parts[places[-1] :])) if places else f"graphs/{path.name}"
