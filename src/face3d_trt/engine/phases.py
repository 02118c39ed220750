"""How far a build is, out of TensorRT's nested phases; where it has none, that it lives."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.report import Reporter

_SCALE = 1000  # the bar's steps: TensorRT gives fractions
_BEAT_S = 2.0  # how often a terminal is told
_LINE_BEATS = 15  # and, each 30 s, a log


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


@contextlib.contextmanager
def heartbeat(report: Reporter, text: str, beat_s: float = _BEAT_S) -> Iterator[None]:
    """While the work inside runs, tell how long it has been running: for a TensorRT that does not say how far it is."""
    ended = threading.Event()
    begun = time.monotonic()

    def beat() -> None:
        count = 0
        while not ended.wait(beat_s):
            count += 1
            seconds = time.monotonic() - begun
            if count % _LINE_BEATS == 0:
                report.stage(f"still {text}, {seconds:.0f} s")
            else:
                report.progress(f"{text}, {seconds:.0f} s", 0, 1)

    thread = threading.Thread(target=beat, name="face3d-trt heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
