"""What a run of `reconstruct` is asked for: options, then the environment, then what suits the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.faces.detect import DETECTORS
from face3d_trt.monitor.limits import Limits
from face3d_trt.names import DEFAULT_ONNX, MAX_BATCH
from face3d_trt.reconstruct.products import ProductOptions

Which = Literal["largest", "all"]
Where = Literal["cpu", "gpu"]
BATCH, WORKERS, QUEUE = "FACE3D_BATCH_SIZE", "FACE3D_WORKER_COUNT", "FACE3D_MAX_QUEUE_SIZE"
RESULTS = "results.jsonl"
_MOST_WORKERS, _MOST_QUEUED = 1024, 1 << 20
_PLANS = tuple(Path(DEFAULT_ONNX).with_suffix(f".{kind}.plan") for kind in ("fp16", "int8", "fp32"))


@dataclass(frozen=True)
class ReconstructOptions:
    """What to reconstruct, with what, and how much at a time.

    Attributes:
        sources: Folders, globs, pictures, videos, arrays of crops, list files; see `sources.find_items`.
        output: Folder of the results.
        plan: A plan or an ONNX file; None: what `build` or `export` left in `engines/`.
        detector: One of DETECTORS; None: mtcnn, or landmarks where there is a file of points.
        landmarks: The file of points.
        faces: Of a photo with several faces: the largest, or all of them.
        products: What is made of a face.
        devices: "all", indices of GPUs like "0,1", or "cpu"; "cpu,cpu" are two engines on the CPU.
        workers: Processes that read, detect, bake and write; None: one for each core.
        batch: Crops that the engine takes at a time; None: the plan's largest.
        queue: Pictures on their way between reading and writing; None: a few for each worker.
        decode: Where JPEG files are decoded; "gpu" takes nvImageCodec.
        resume: Go on where an earlier run into `output` ended.
        manifest: The list of results; None: `output`/results.jsonl.
        limits: That the GPUs are held to, by smaller batches.
        metrics_port: Where Prometheus is answered; None: nowhere.
    """

    sources: tuple[str, ...]
    output: Path
    plan: Path | None = None
    detector: str | None = None
    landmarks: Path | None = None
    faces: Which = "largest"
    products: ProductOptions = field(default_factory=ProductOptions)
    devices: str = "all"
    workers: int | None = None
    batch: int | None = None
    queue: int | None = None
    decode: Where = "cpu"
    resume: bool = False
    manifest: Path | None = None
    limits: Limits = field(default_factory=Limits)
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        """Refuse what means nothing, before anything starts.

        Raises:
            UsageError: A number out of range, or an unknown name.
        """
        if not self.sources:
            raise UsageError("there is nothing to reconstruct", allowed="folders, pictures, globs, lists, videos")
        if self.faces not in get_args(Which):
            raise UsageError(f"--faces {self.faces}", allowed=", ".join(get_args(Which)))
        if self.decode not in get_args(Where):
            raise UsageError(f"--decode {self.decode}", allowed=", ".join(get_args(Where)))
        if self.detector is not None and self.detector not in DETECTORS:
            raise UsageError(f"there is no detector {self.detector!r}", allowed=", ".join(DETECTORS))
        if (self.detector == "landmarks") != (self.landmarks is not None) and self.detector is not None:
            raise UsageError(
                f"--detector {self.detector} {'needs' if self.landmarks is None else 'reads no'} file of points",
                allowed="--detector landmarks --landmarks points.json, or another detector without --landmarks",
            )
        _check("--batch", self.batch, MAX_BATCH)
        _check("--workers", self.workers, _MOST_WORKERS)
        _check("--queue", self.queue, _MOST_QUEUED)

    @property
    def detector_name(self) -> str:
        """The detector that is used."""
        return self.detector or ("mtcnn" if self.landmarks is None else "landmarks")

    @property
    def results(self) -> Path:
        """The list of results."""
        return self.manifest or self.output / RESULTS

    @property
    def keeps_photos(self) -> bool:
        """Whether a product is made from the photo, which then stays in memory until the end."""
        return bool(self.products.save - {"coeffs"})

    @property
    def crops_only(self) -> bool:
        """Whether every picture is a crop already."""
        return self.detector_name == "aligned"


def whole_number(option: str, given: int | None, variable: str, environment: Mapping[str, str]) -> int | None:
    """An option, or else the environment variable that is the same setting; None where neither is given.

    Raises:
        UsageError: The variable is no whole number above 0.
    """
    text = environment.get(variable, "")
    if given is not None or not text.strip():
        return given
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(
            f"the environment variable {variable} is {text!r}",
            allowed=f"a whole number above 0, as for {option}",
            run=f"unset {variable}    # or {option} N, which goes before it",
        )
    return number


def find_plan(plan: Path | None) -> Path:
    """The plan or ONNX file to run.

    Raises:
        MissingError: None was named, and there is none in `engines/`; or there is no such file.
    """
    if plan is not None and not plan.is_file():
        raise MissingError(f"{plan} is not there", allowed="a plan of build, or an ONNX file of export")
    for each in (plan,) if plan else (*_PLANS, Path(DEFAULT_ONNX)):
        if each.is_file():
            return each
    raise MissingError(
        f"there is no engine in {_PLANS[0].parent}/",
        allowed="a plan of build, or an ONNX file of export",
        run="face3d-trt export && face3d-trt build --fp16",
    )


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _check(option: str, number: int | None, most: int) -> None:
    if number is not None and not 1 <= number <= most:
        raise UsageError(f"{option} {number}", allowed=f"1 to {most}")
