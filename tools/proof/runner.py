"""Runs steps one after the other, each in its interpreter; what is done already is left alone."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .results import Settings, done, path_of
from .steps import Side, Step

State = Literal["done", "reused", "skipped", "failed", "blocked", "later"]
Launch = Callable[[Step, float], int]  # runs a step for at most so many seconds and gives its exit code
TAIL = 12  # lines of a failed step's log that are shown
TIMED_OUT = 124  # as coreutils' timeout has it


@dataclass(frozen=True)
class Outcome:
    """What became of a step."""

    step: str
    state: State
    text: str

    @property
    def bad(self) -> bool:
        """Whether the whole run has failed by it."""
        return self.state in ("failed", "blocked")


def run_steps(
    steps: Sequence[Step],
    settings: Settings,
    launch: Launch,
    *,
    budget_s: float | None = None,
    say: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Run what is not done yet; a step that fails does not stop the others.

    Args:
        steps: In order.
        settings: Where results are, and at which scale they count.
        launch: Runs one.
        budget_s: Seconds for all of them; a step that would not fit is left for a later call.
        say: Hears one line per step.
        clock: Seconds.
    """
    begun, outcomes = clock(), []
    for step in steps:
        left = None if budget_s is None else budget_s - (clock() - begun)
        outcome = _run(step, settings, launch, left)
        say(f"{outcome.state:<8} {outcome.step:<20} {outcome.text}")
        outcomes.append(outcome)
    return outcomes


def _run(step: Step, settings: Settings, launch: Launch, left: float | None) -> Outcome:
    if (result := done(step.name, settings)) is not None:
        return Outcome(step.name, "reused", f"of {result.when}")
    missing = [name for name in step.needs if done(name, settings) is None]
    if missing:
        return Outcome(step.name, "blocked", f"needs {', '.join(missing)}: --steps {','.join([*missing, step.name])}")
    if left is not None and left < step.expected_s:
        return Outcome(step.name, "later", f"takes about {step.expected_s:.0f} s, and {max(0, left):.0f} s are left")
    path_of(step.name, settings.out).unlink(missing_ok=True)
    code = launch(step, step.timeout_s if left is None else min(step.timeout_s, left))
    result = done(step.name, settings)
    if code == 0 and result is not None:
        if result.skipped:
            return Outcome(step.name, "skipped", result.skipped)
        return Outcome(step.name, "done", f"{result.seconds:.1f} s")
    reason = "ran out of time" if code == TIMED_OUT else f"ended with {code}"
    return Outcome(step.name, "failed", f"{reason}\n{_tail(settings.log(step.name))}".rstrip())


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(f"    {line}" for line in lines[-TAIL:])


class Launcher:
    """Starts a step as a process of its own.

    Args:
        script: What is a step when it is told `--run-step`, such as tools/gpu_proof.py.
        settings: Handed on.
        interpreters: The command of each side's Python.
    """

    def __init__(self, script: Path, settings: Settings, interpreters: Mapping[Side, str]) -> None:
        self._script = script
        self._settings = settings
        self._interpreters = interpreters

    def command(self, step: Step) -> list[str]:
        """The words of the step's command line."""
        words = [str(self._script), "--run-step", step.name, *self._settings.words()]
        return [*interpreter_words(self._interpreters[step.side]), *words]

    def __call__(self, step: Step, seconds: float) -> int:
        """Run it; its output goes to the step's log. Past its time, it and all that it started are ended."""
        with self._settings.log(step.name).open("wb") as log:
            process = subprocess.Popen(self.command(step), stdout=log, stderr=log, start_new_session=True)
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return TIMED_OUT
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def interpreter_words(command: str) -> list[str]:
    """A Python's command as words; bash knows it where no file has that name: an exported function, for example."""
    words = shlex.split(command)
    if not words:
        raise ValueError("an interpreter's command is empty")
    if shutil.which(words[0]) is not None:
        return words
    return ["bash", "-c", f'{command} "$@"', "bash"]
