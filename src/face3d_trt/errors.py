"""Everything this package raises on purpose.

Face3DError
├── UsageError              exit 2: what was asked for cannot be done with this input
│   ├── ImageError          a picture that cannot be read, or is too large
│   ├── FaceError           no face, or no points for it
│   ├── ModelError          a model directory that is incomplete, damaged or of another layout
│   ├── GraphError          an ONNX file that is not one of ours, or that lost a dynamic dimension
│   ├── ProfileError        a malformed, inverted or unreachable optimization profile
│   ├── CalibrationError    a calibration set that is empty or unreadable
│   ├── InputError          an array that an engine does not take: dtype, shape, range, NaN
│   └── PlanError           a plan file or manifest that is damaged or belongs to something else
├── MissingError            exit 3: this machine lacks a package, a model, a GPU, space or a permission
│   └── StorageError        the disk is full or the folder cannot be written
├── EngineError             exit 1: an engine that is closed, belongs to another process, or failed while it ran
├── StoppedError            exit 1: a run that ended before its work was done; what was done is kept
└── BuildError              exit 1: TensorRT, or a precision pass, refused the graph

A comparison that fails its limits is no error: it is a Verdict, and the command's exit code is 1.

Every message says what was wrong, what is allowed, and the command that mends it.
"""

from __future__ import annotations


class Face3DError(Exception):
    """Base of every error raised on purpose.

    Args:
        problem: What was wrong, naming the file, option or value.
        allowed: What would have been right: a range, a list of names, a shape.
        run: The command that mends it.
    """

    exit_code = 1

    def __init__(self, problem: str, *, allowed: str | None = None, run: str | None = None) -> None:
        self.problem = problem
        self.allowed = allowed
        self.run = run
        super().__init__(problem)

    def __str__(self) -> str:
        lines = [self.problem]
        if self.allowed:
            lines.append(f"  allowed: {self.allowed}")
        if self.run:
            lines.append(f"  run:     {self.run}")
        return "\n".join(lines)


class UsageError(Face3DError):
    """What was asked for cannot be done with this input."""

    exit_code = 2


class ImageError(UsageError):
    """A picture that cannot be read, or is too large."""


class FaceError(UsageError):
    """No face in a picture, or no points for it."""


class ModelError(UsageError):
    """A model directory that is incomplete, damaged or of another layout."""


class GraphError(UsageError):
    """An ONNX file that is not one of ours, or that lost a dynamic dimension."""


class ProfileError(UsageError):
    """A malformed, inverted or unreachable optimization profile."""


class CalibrationError(UsageError):
    """A calibration set that is empty or unreadable."""


class InputError(UsageError):
    """An array that an engine does not take: dtype, shape, range, NaN."""


class PlanError(UsageError):
    """A plan file or manifest that is damaged or belongs to something else."""


class MissingError(Face3DError):
    """This machine lacks a package, a model, a GPU, space or a permission."""

    exit_code = 3


class StorageError(MissingError):
    """The disk is full or the folder cannot be written."""


class EngineError(Face3DError):
    """An engine that is closed, belongs to another process, or failed while it ran."""


class BuildError(Face3DError):
    """TensorRT, or a precision pass, refused the graph."""


class StoppedError(Face3DError):
    """A run that ended before its work was done: a full disk, an engine that fails. What was done is kept."""
