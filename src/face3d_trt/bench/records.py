"""What `bench` writes and `bench report` merges: one BenchFile for each run of one interpreter on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from face3d_trt.errors import UsageError
from face3d_trt.records import Precision, Record

Mode = Literal["engine", "host"]  # inputs and outputs stay on the device; or numpy to numpy, copies counted
# What a row computes in. "tf32": float32 storage, TF32 products; "amp": torch.autocast to fp16 over float32 weights.
Arithmetic = Literal["fp32", "tf32", "amp", "bf16", "fp16", "int8"]


class Rate(Record):
    """Calls back to back, none waited for: milliseconds of one call, by CUDA events (by the host's clock on a CPU)."""

    ms: float  # median of the windows that agree
    images_per_second: float
    spread: float  # largest over smallest of them, minus one
    settled: bool  # whether that is within the tolerance
    windows: tuple[float, ...]  # ms, all that were measured, in order


class Latency(Record):
    """Single calls, each waited for; milliseconds by the host's clock."""

    calls: int
    p50: float
    p90: float
    p95: float
    p99: float
    mean: float
    max: float


class Memory(Record):
    """Peaks in bytes over warm-up and measurement; None where it is not known."""

    process: int | None = None  # GPU memory of the whole process, its CUDA context included, by NVML
    context: int | None = None  # GPU memory of the process with a CUDA context and nothing else
    allocator: int | None = None  # peak of torch's caching allocator
    host: int | None = None  # resident set of the process


class Device(Record):
    """What the GPU did while calls ran back to back, by NVML; None where it is not told."""

    watts: float | None = None
    images_per_joule: float | None = None
    utilization: float | None = None  # share of the time with a kernel running, 0 to 1
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] = ()  # reasons seen: "power cap", "thermal slowdown", ...


class Row(Record):
    """One backend at one batch size in one mode."""

    backend: str  # as --backend names it
    label: str  # for tables: "torch, half, channels_last, compiled (reduce-overhead)"
    arithmetic: Arithmetic
    plan: str | None = None  # file name of the plan or ONNX file
    mode: Mode
    outputs: Literal["coeffs", "mesh"]
    input: Literal["float32", "uint8"]
    batch: int = Field(ge=1)
    height: int
    width: int
    rate: Rate | None = None
    latency: Latency | None = None
    memory: Memory = Memory()
    device: Device = Device()
    setup_s: float | None = None  # until the first result: load, compile, capture
    # Largest over the coefficient groups: root mean square difference from float32 over the spread between pictures.
    error: float | None = None
    skipped: str | None = None  # why there are no figures: "out of memory", "compilation took more than 120 s", ...


class LayerTime(Record):
    """One layer of an engine by TensorRT's profiler."""

    name: str
    ms: float
    kind: str  # "Convolution", "Reformat", ...


class LayerProfile(Record):
    """Where an engine's time goes, at one batch size."""

    plan: str
    precision: Precision
    batch: int
    layers: tuple[LayerTime, ...]


class Ceilings(Record):
    """What this machine reaches at its best, measured here; None where it was not measured."""

    fp32_flops: float | None = None  # matrix products per second, a multiply-add counted as two
    tf32_flops: float | None = None
    fp16_flops: float | None = None
    int8_ops: float | None = None
    memory_bytes_per_s: float | None = None  # device memory, read and write together
    upload_bytes_per_s: float | None = None  # page-locked, host to device
    download_bytes_per_s: float | None = None


class NodeWork(Record):
    """What one node costs for one picture."""

    name: str  # as the graph has it: "backbone.layer1.0.conv1/Conv"; "backbone.layer1.0/Add" is a residual input
    flops: float  # a multiply-add counted as two
    weight_elements: int
    activation_elements: int  # read and written


class Work(Record):
    """What one picture costs by count, from the graph: convolutions, matrix products and residual inputs.

    What follows a convolution element by element, and a max pooling behind it, is taken as fused: it moves nothing.
    """

    flops: float  # a multiply-add counted as two
    weight_elements: int
    activation_elements: int  # read and written by convolutions and matrix products, residual inputs included
    nodes: tuple[NodeWork, ...] = ()  # that add up to it


class Machine(Record):
    """What a run ran on."""

    gpu: str | None  # "NVIDIA H200"; None: CPU
    compute_capability: str | None
    driver: str | None
    gpu_memory_bytes: int | None
    cpu: str
    cores: int  # that this process may use
    system: str
    packages: dict[str, str]  # python, torch, tensorrt, ... of this interpreter


class BenchFile(Record):
    """One run. Rows of several files are compared only where `model_sha256`, size and machine agree."""

    schema_version: Literal[1] = 1
    created: str  # ISO 8601, UTC
    command: str
    machine: Machine
    model: str  # "stand-in, full" or the directory's name
    model_sha256: str | None  # of the checkpoint, where the run knew it
    rows: tuple[Row, ...]
    layers: tuple[LayerProfile, ...] = ()
    ceilings: Ceilings = Ceilings()
    work: Work | None = None
    seconds: float  # the run took


def read_run(path: Path) -> BenchFile:
    """Read what `bench --json` wrote.

    Raises:
        UsageError: It is missing, or no such file.
    """
    try:
        return BenchFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        problem = error.strerror if isinstance(error, OSError) else _first(error)
        raise UsageError(
            f"{path} is not a benchmark's file: {problem}",
            allowed="files that `face3d-trt bench --json` wrote, of this version",
            run="face3d-trt bench --json out.json",
        ) from error


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
