"""Import of packages that belong to an extra, and the command that installs what is missing."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import FrameType, ModuleType

from face3d_trt.errors import MissingError

DISTRIBUTION = "face3d-trt"
# How a wheel's metadata marks what belongs to an extra: `torch>=2.8; extra == 'export'`, after other conditions if any.
_EXTRA = re.compile(r"""(?:\s*\band\b)?\s*\bextra\s*==\s*(['"])([\w.-]+)\1""")


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import `module`, which the extra `extra` brings.

    Raises:
        MissingError: It is not installed, or cannot be imported; the message has the pip command.
    """
    try:
        return import_package(module)
    except ImportError as error:
        raise MissingError(
            f"{purpose} needs the package {module.partition('.')[0]}, which cannot be imported: {error}",
            run=install_command(extra),
        ) from error


def import_package(name: str) -> ModuleType:
    """Import `name`; Ctrl-C meanwhile is KeyboardInterrupt, whatever the package makes of it.

    A C extension whose initialisation is interrupted may say "initialization failed", an ImportError, or nothing.

    Raises:
        ImportError, OSError: As the import raises them; OSError where a library that the package loads is not there.
    """
    with _noticed() as interrupted:
        try:
            module = importlib.import_module(name)
        except Exception as error:
            if interrupted or _was_interrupted(error):
                raise KeyboardInterrupt from error
            raise
    if interrupted:
        raise KeyboardInterrupt
    return module


@contextlib.contextmanager
def _noticed() -> Iterator[list[int]]:
    """The SIGINTs that come inside, which are handled as ever."""
    seen: list[int] = []
    former = signal.getsignal(signal.SIGINT)
    if not callable(former) or threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        former(number, frame)

    signal.signal(signal.SIGINT, handler)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, former)


def _was_interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def install_command(*extras: str) -> str:
    """The pip command that brings the packages of `extras`.

    It names the packages themselves, as the installed metadata lists them, because `face3d-trt[...]` can be installed
    only where face3d-trt came from. A source tree that was never installed is installed with its extras.
    """
    try:
        texts = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        tree = source_tree()
        here = "." if tree is None or tree == Path.cwd() else str(tree)
        return f"pip install -e '{here}[{','.join(extras)}]'"
    return shlex.join(["pip", "install", *requirements_of(texts, extras)])


def requirements_of(texts: Iterable[str], extras: Iterable[str]) -> tuple[str, ...]:
    """Those of the requirements `texts` (`Requires-Dist` of a wheel) that `extras` add; each once, sorted."""
    wanted = set(extras)
    return tuple(sorted({requirement for extra, requirement in _by_extra(texts) if extra in wanted}))


def reinstall_command() -> str | None:
    """The command that brings this package's own files back; None for a copy of unknown origin."""
    tree = source_tree()
    if tree is not None:
        return f"git -C {shlex.quote(str(tree))} checkout -- src"
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")  # PEP 610
    what = origin.get("url") or f"{DISTRIBUTION}=={distribution.version}"
    return shlex.join(["pip", "install", "--force-reinstall", "--no-deps", what])


def source_tree() -> Path | None:
    """The checkout that this package is imported from; None for a wheel's copy."""
    tree = Path(__file__).resolve().parents[2]
    return tree if (tree / "pyproject.toml").is_file() else None


def _by_extra(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(extra, requirement without the extra's mark)."""
    for text in texts:
        requirement, _, marker = text.partition(";")
        if found := _EXTRA.search(marker):
            rest = _EXTRA.sub("", marker).strip()
            yield found[2], requirement.strip() + (f"; {rest}" if rest else "")
