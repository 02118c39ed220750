"""What the bench wants of a backend: how to make one call, and nothing of how time is taken.

`bench/child.py` drives it, in a process of its own for each backend:

    backend = make(name, source)       # cheap: imports its framework, loads nothing
    backend.start()                    # a CUDA context and nothing else; the process's memory is read here
    ready = backend.ready(case)        # loads, compiles, captures, warms up once; Skip where it cannot
    ready.call(); ready.finish()       # timed by the bench
    ready.window_ms(100)
    ready.close()                      # before the next case
    backend.close()
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from face3d_trt.bench.records import Arithmetic, Mode
    from face3d_trt.runtime.interface import HostArray


class Skip(Exception):  # noqa: N818  it is no error: the row says why there are no figures
    """A backend cannot do a case: `Skip("compilation took more than 120 s")`.

    Out of memory need not be turned into one: the bench knows torch's, CUDA's and TensorRT's words for it.
    """


@dataclass(frozen=True)
class Case:
    """What is timed.

    Attributes:
        batch: Pictures of a call.
        height: Of a picture, pixels.
        width: Of a picture, pixels.
        mode: "engine": inputs and outputs stay on the device. "host": numpy to numpy, copies counted.
        outputs: "coeffs", or "mesh": coefficients, vertices and texture.
        input: Of "host": what the numpy array is, float32 (batch, 3, height, width) of 0 to 1, or uint8 (batch, height,
            width, 3). With "engine" the graph that is timed begins there too, as a plan's graph does.
    """

    batch: int
    height: int = 224
    width: int = 224
    mode: Mode = "engine"
    outputs: Literal["coeffs", "mesh"] = "coeffs"
    input: Literal["float32", "uint8"] = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the input array."""
        if self.input == "uint8":
            return (self.batch, self.height, self.width, 3)
        return (self.batch, 3, self.height, self.width)


@dataclass(frozen=True)
class Source:
    """What backends are made from; each takes what it needs.

    Attributes:
        model: The checkpoint directory.
        onnx: The float32 graph of `export`.
        plan: A TensorRT plan, or a typed ONNX file.
        device: Index of the GPU; None: the CPU.
        compile_limit_s: Seconds that compiling one case may take; the bench ends a process that takes longer.
        calib: Aligned crops, for a backend that quantizes by itself.
        folder: Of this run, for what a backend has to write; it goes with the run.
    """

    model: Path | None = None
    onnx: Path | None = None
    plan: Path | None = None
    device: int | None = None
    compile_limit_s: float = 120.0
    calib: Path | None = None
    folder: Path | None = None


class Ready(Protocol):
    """A backend at one case; `inputs.random_inputs(case)` in place, several sets in rotation, never zeros."""

    def call(self) -> None:
        """One call on the next input.

        "engine": enqueued and not waited for; inputs lie on the device in the type and layout that the backend likes
        best, results stay there. "host": from a numpy array of case.shape through page-locked memory to numpy arrays,
        which hold the result when it returns.
        """

    def finish(self) -> None:
        """Wait for all that was enqueued."""

    def window_ms(self, loops: int) -> float:
        """Milliseconds per call of `loops` calls back to back.

        On a GPU by CUDA events with "engine"; by the host's clock with "host", where calls may overlap as the backend's
        users would let them, and on a CPU. All calls have ended when it returns.
        """

    def allocator_peak(self) -> int | None:
        """Peak bytes of torch's caching allocator since the case began; None: another framework."""

    def coeffs(self, images: HostArray) -> HostArray:
        """Coefficients of given pictures, for the error figure.

        Args:
            images: Of case.shape and the case's input type.

        Returns:
            float32 (batch, 257).
        """

    def close(self) -> None:
        """Free what this case took."""


class Backend(Protocol):
    """One way to run the model.

    Attributes:
        name: As --backend has it.
        label: For tables: "torch, half, channels_last, compiled (reduce-overhead)".
        arithmetic: What it computes in.
        plan: File name of the plan or ONNX file that it runs.
    """

    @property
    def name(self) -> str:
        """As --backend has it."""

    @property
    def label(self) -> str:
        """For tables."""

    @property
    def arithmetic(self) -> Arithmetic:
        """What it computes in."""

    @property
    def plan(self) -> str | None:
        """File name of the plan or ONNX file that it runs."""

    def start(self) -> None:
        """Make the CUDA context and nothing else; nothing on a CPU."""

    def ready(self, case: Case) -> Ready:
        """Get ready for a case, up to and including a first call that is waited for.

        Raises:
            Skip: It cannot do this case.
        """

    def close(self) -> None:
        """Free everything."""
