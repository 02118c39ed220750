"""What a bisection has found so far, beside its output, so that it can be interrupted and taken up again."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.bisect.alone import Found
from face3d_trt.files import fingerprint, write_text
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.parity.judging import Judged

VERSION = 2  # raise it when the same graphs and pictures give other figures
_EVERY_S = 2.0  # between two writes


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the gate said of one set of kept nodes."""

    passed: bool
    strain: float
    group: str
    meaning: str

    @property
    def text(self) -> str:
        """The worst rows, and how much of its limit the worse one uses."""
        return f"{self.group}; {self.meaning}; {self.strain:.0%} of the limit"


class State:
    """Results by node, and verdicts by set of kept nodes.

    Args:
        path: The file; None: nothing is written.
        key: Fingerprint of all that the results follow from.
    """

    def __init__(self, path: Path | None, key: str) -> None:
        self.path, self.key = path, key
        self.nodes: dict[str, Found] = {}
        self.verdicts: dict[str, Verdict] = {}
        self._written = time.monotonic()

    def add(self, name: str, found: Found) -> None:
        """Put in what was found of one node."""
        self.nodes[name] = found
        self._save_sometimes()

    def verdict(self, names: Iterator[str] | tuple[str, ...], judge: Callable[[], Judged]) -> Verdict:
        """What the gate says of a set of kept nodes, asked once."""
        key = fingerprint(*sorted(names))
        if key not in self.verdicts:
            judged = judge()
            self.verdicts[key] = Verdict(judged.passed, judged.strain, judged.worst_group, judged.worst_meaning)
            self._save_sometimes()
        return self.verdicts[key]

    def save(self) -> None:
        """Write all of it."""
        self._written = time.monotonic()
        if self.path is not None:
            content = {
                "key": self.key,
                "nodes": {name: dataclasses.asdict(found) for name, found in self.nodes.items()},
                "verdicts": {key: dataclasses.asdict(verdict) for key, verdict in self.verdicts.items()},
            }
            write_text(self.path, json.dumps(content))

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._written > _EVERY_S:
            self.save()


@contextlib.contextmanager
def kept_state(path: Path | None, key: str, report: Reporter = SILENT) -> Iterator[State]:
    """The state in `path` if it is one for `key`, else a new one.

    It is written when the block is left by an error or Ctrl-C, and removed when the block is done.

    Args:
        path: The file; None: nothing is read or written.
        key: Fingerprint of all that the results follow from.
        report: Told what is taken up again.
    """
    state = State(path, key)
    if path is not None and path.is_file():
        _read(path, state)
        if state.nodes:
            report.stage(f"resumed    {path}: {len(state.nodes)} nodes were measured already")
    try:
        yield state
    except BaseException:
        state.save()
        if path is not None and state.nodes:
            report.stage(
                f"kept       {path}: {len(state.nodes)} nodes are measured; the same command goes on from there"
            )
        raise
    if path is not None:
        path.unlink(missing_ok=True)


def _read(path: Path, state: State) -> None:
    """Take over what `path` holds for the same key; anything else is left aside."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["key"] != state.key:
            return
        nodes = {name: Found(**found) for name, found in content["nodes"].items()}
        verdicts = {key: Verdict(**verdict) for key, verdict in content["verdicts"].items()}
        state.nodes.update(nodes)
        state.verdicts.update(verdicts)
