"""What a run is asked for, and how the words of the command line are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from face3d_trt.bench.measure import Pace
from face3d_trt.bench.registry import BACKENDS
from face3d_trt.errors import UsageError
from face3d_trt.names import CROP, MAX_BATCH
from face3d_trt.parity.batches import parse_image_size

GPU_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CPU_BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True)
class BenchOptions:
    """A run.

    Attributes:
        backends: Keys of registry.BACKENDS; empty: those that this machine can run.
        plans: For `trt`; empty: every plan of engines/ that has a manifest.
        onnx: The float32 graph of `export`, for `ort-*`; None: the default one, if it is there.
        model: Directory or ModelScope id, for `torch-*`; None: the one that was exported.
        batches: Batch sizes; empty: a list for the device.
        height: Of a picture, pixels.
        width: Of a picture, pixels.
        outputs: What is computed.
        input: What goes in; None: what the plans or the graph take.
        transfers: Measure numpy to numpy as well; without a GPU that is what is measured anyway.
        transfers_at: The same at these batches alone, whether `batches` has them or not; empty: at none but those of
            `transfers`.
        device: Index of the GPU, "cpu", or None: the first GPU where there is one.
        json: The file that grows with every row; None: none.
        resume: Keep the rows with figures that `json` has, and measure what it lacks.
        pace: How long a row takes.
        compile_limit_s: Seconds that compiling one case may take.
        budget_s: Seconds after which no case is begun; None: no limit.
        calib: Pictures that calibrate ONNX Runtime's own int8; None: the package's samples.
        reference: A file of `compare --save-reference`, for the error figure.
        layers: Whether the layers of plans are timed.
        ceilings: Whether the machine's ceilings are measured.
        command: The command line, for the record.
    """

    backends: tuple[str, ...] = ()
    plans: tuple[Path, ...] = ()
    onnx: Path | None = None
    model: str | None = None
    batches: tuple[int, ...] = ()
    height: int = CROP
    width: int = CROP
    outputs: Literal["coeffs", "mesh"] = "coeffs"
    input: Literal["float32", "uint8"] | None = None
    transfers: bool = False
    transfers_at: tuple[int, ...] = ()
    device: int | Literal["cpu"] | None = None
    json: Path | None = None
    resume: bool = False
    pace: Pace = field(default_factory=Pace)
    compile_limit_s: float = 120.0
    budget_s: float | None = None
    calib: Path | None = None
    reference: Path | None = None
    layers: bool = True
    ceilings: bool = True
    command: str = ""


def parse_backends(texts: Iterable[str]) -> tuple[str, ...]:
    """Names, each given alone or in a list with commas.

    Raises:
        UsageError: There is no such backend.
    """
    names = tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))
    if unknown := [name for name in names if name not in BACKENDS]:
        raise UsageError(f"--backend {unknown[0]}: there is no such backend", allowed=", ".join(BACKENDS))
    return names


def parse_batches(text: str, option: str = "--batches") -> tuple[int, ...]:
    """`1,2,8`, ascending and each once.

    Args:
        text: As it was given.
        option: To which.

    Raises:
        UsageError: Not numbers, or out of range.
    """
    try:
        batches = sorted({int(word) for word in text.split(",") if word.strip()})
    except ValueError:
        batches = []
    if not batches or batches[0] < 1 or batches[-1] > MAX_BATCH:
        raise UsageError(f"{option} {text!r}", allowed=f"numbers from 1 to {MAX_BATCH} with commas between, like 1,8")
    return tuple(batches)


def parse_size(text: str) -> tuple[int, int]:
    """`224`, or `160x192`: height and width.

    Raises:
        UsageError: It is neither, or a side that the graph does not take.
    """
    return parse_image_size(text if "x" in text.lower() else f"{text}x{text}")


def parse_device(text: str | None) -> int | Literal["cpu"] | None:
    """`cpu`, or the index of a GPU.

    Raises:
        UsageError: It is neither.
    """
    if text is None:
        return None
    if text.strip().lower() == "cpu":
        return "cpu"
    if text.strip().isdecimal():
        return int(text)
    raise UsageError(f"--device {text!r}", allowed="the index of a GPU, from 0 on, or cpu")
