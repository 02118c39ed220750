"""Work in a process of its own within a step: its memory, its exit code and what it says on stderr are then its own."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[1] / "gpu_proof.py"
MARK = "answer: "


@dataclass(frozen=True)
class Child:
    """How a child ended.

    Attributes:
        code: Exit code; negative: the signal that ended it.
        answer: What the function returned; None where it did not.
        stderr: All of it.
        seconds: Wall clock, the start of the interpreter included.
    """

    code: int
    answer: dict[str, Any] | None
    stderr: str
    seconds: float

    def expect(self) -> dict[str, Any]:
        """The answer.

        Raises:
            RuntimeError: There is none.
        """
        if self.code or self.answer is None:
            raise RuntimeError(f"a child process ended with {self.code}:\n{self.stderr[-4000:]}")
        return self.answer


def run_child(home: str, timeout_s: float = 600, **arguments: Any) -> Child:
    """Call `module:function` of this package in a new process of the same interpreter.

    Args:
        home: The function; it is given `arguments` and returns what JSON can hold.
        timeout_s: After which it is ended.
        arguments: What JSON can hold.
    """
    begun = time.monotonic()
    command = [sys.executable, str(SCRIPT), "--child", home, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    lines = done.stdout.decode(errors="replace").splitlines()
    answers = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    answer = json.loads(answers[-1]) if answers else None
    return Child(done.returncode, answer, done.stderr.decode(errors="replace"), time.monotonic() - begun)


def be_child(home: str, arguments: str) -> None:
    """The other end of `run_child`."""
    print(MARK + json.dumps(function(home)(**json.loads(arguments))), flush=True)


def function(home: str) -> Any:
    """`build:run` → the function `run` of this package's module `build`."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)
