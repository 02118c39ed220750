"""How far a build is, out of TensorRT's nested phases."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.report import Reporter

_SCALE = 1000  # the bar's steps: TensorRT gives fractions


@dataclass
class _Phase:
    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """Turns IProgressMonitor's calls, which come from several threads, into one bar that never runs backwards."""

    def __init__(self, report: Reporter, text: str) -> None:
        self._report = report
        self._text = text
        self._phases: dict[str, _Phase] = {}
        self._shown = 0
        self._lock = threading.Lock()

    def start(self, name: str, parent: str | None, steps: int) -> None:
        """A phase begins, inside `parent` if there is one."""
        with self._lock:
            self._phases[name] = _Phase(parent, max(steps, 1))

    def step(self, name: str, step: int) -> None:
        """Step number `step` of a phase is finished."""
        with self._lock:
            if phase := self._phases.get(name):
                phase.done = min(step + 1, phase.steps)
            self._show(self.fraction(name))

    def finish(self, name: str) -> None:
        """A phase ends."""
        with self._lock:
            phase = self._phases.pop(name, None)
            if phase is not None and phase.parent is None:
                self._show(1.0)

    def fraction(self, name: str | None) -> float:
        """Share of the whole build that is finished, as seen from the running phase `name`."""
        share = 0.0
        while name is not None and (phase := self._phases.get(name)):
            share = min((phase.done + share) / phase.steps, 1.0)
            name = phase.parent
        return share

    def _show(self, fraction: float) -> None:
        done = round(fraction * _SCALE)
        if done > self._shown:
            self._shown = done
            self._report.progress(self._text, done, _SCALE)
