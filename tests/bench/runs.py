"""Runs with invented figures: a machine, rows, whole files. Nothing here was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from face3d_trt.bench.records import (
    BenchFile,
    Ceilings,
    Device,
    Latency,
    LayerProfile,
    LayerTime,
    Machine,
    Memory,
    Rate,
    Row,
    Work,
)
from face3d_trt.bench.work import count_network

GPU = Machine(
    gpu="Invented GPU",
    compute_capability="9.0",
    driver="1.2.3",
    gpu_memory_bytes=80_000_000_000,
    cpu="Invented CPU",
    cores=8,
    system="Linux x86_64",
    packages={"python": "3.12.3", "torch": "2.11.0"},
)
ENGINE_SIDE = GPU.model_copy(update={"driver": "unknown", "packages": {"python": "3.10.13", "tensorrt": "8.6.0"}})
CPU = GPU.model_copy(
    update={"gpu": None, "compute_capability": None, "driver": None, "gpu_memory_bytes": None, "cores": 2}
)
CEILINGS = Ceilings(
    fp32_flops=50e12,
    tf32_flops=400e12,
    fp16_flops=700e12,
    int8_ops=1400e12,
    memory_bytes_per_s=4e12,
    upload_bytes_per_s=50e9,
    download_bytes_per_s=50e9,
)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# (label, arithmetic, plan, ms of a call at batch 1, ms for each further picture)
KINDS: Mapping[str, tuple[str, str, str | None, float, float]] = {
    "torch-fp32": ("torch, float32", "fp32", None, 4.0, 0.16),
    "torch-tf32": ("torch, TF32", "tf32", None, 3.9, 0.12),
    "torch-amp": ("torch, autocast to fp16", "amp", None, 4.2, 0.10),
    "torch-bf16": ("torch, bfloat16", "bf16", None, 3.0, 0.07),
    "torch-half": ("torch, half, channels_last", "fp16", None, 3.0, 0.07),
    "torch-compile": ("torch, half, channels_last, compiled (reduce-overhead)", "fp16", None, 0.8, 0.04),
    "torch-graph": ("torch, half, channels_last, CUDA graph", "fp16", None, 1.0, 0.06),
    "ort-fp32": ("ONNX Runtime, float32", "fp32", "m.onnx", 4.5, 0.2),
    "ort-fp16": ("ONNX Runtime, fp16", "fp16", "m.fp16.onnx", 3.5, 0.1),
    "ort-int8": ("ONNX Runtime, int8", "int8", "m.int8.onnx", 3.0, 0.1),
    "trt-fp16": ("TensorRT, fp16", "fp16", "m.fp16.plan", 0.5, 0.025),
    "trt-int8": ("TensorRT, int8", "int8", "m.int8.plan", 0.4, 0.0125),
}


def row(backend: str, batch: int = 1, ms: float | None = None, **other: Any) -> Row:
    """A row of KINDS; `ms` is one call, back to back and alone."""
    label, arithmetic, plan, first, further = KINDS[backend]
    mode = other.get("mode", "engine")
    taken = ms if ms is not None else (first + further * (batch - 1)) * (1.0 if mode == "engine" else 1.2)
    figures: dict[str, Any] = {
        "backend": "trt" if backend.startswith("trt") else backend,
        "label": label,
        "arithmetic": arithmetic,
        "plan": plan,
        "mode": "engine",
        "outputs": "coeffs",
        "input": "float32",
        "batch": batch,
        "height": 224,
        "width": 224,
        "rate": Rate(
            ms=taken, images_per_second=batch / taken * 1000, spread=0.01, settled=True, windows=(taken, taken * 1.01)
        ),
        "latency": Latency(
            calls=100, p50=taken, p90=1.1 * taken, p95=1.2 * taken, p99=1.5 * taken, mean=1.02 * taken, max=2 * taken
        ),
        "memory": Memory(process=600_000_000 + 4_000_000 * batch, context=500_000_000, host=3_000_000_000),
        "device": Device(watts=400.0, images_per_joule=batch / taken * 2.5, utilization=0.9, sm_mhz=1900.0),
        "setup_s": 1.5,
        "error": 0.004,
    }
    return Row(**{**figures, **other})


def skipped(backend: str, batch: int, why: str, **other: Any) -> Row:
    """A row that says why it has no figures."""
    empty: dict[str, Any] = {"rate": None, "latency": None, "memory": Memory(), "device": Device(), "error": None}
    return row(backend, batch, **{**empty, "skipped": why, "setup_s": None, **other})


def run(
    rows: Sequence[Row], machine: Machine = GPU, *, created: str = "2026-11-30T10:00:00Z", **other: Any
) -> BenchFile:
    """A file."""
    figures: dict[str, Any] = {
        "created": created,
        "command": "face3d-trt bench --json out.json",
        "machine": machine,
        "model": "an invented model",
        "model_sha256": "ab" * 32,
        "rows": tuple(rows),
        "seconds": 12.0,
    }
    return BenchFile(**{**figures, **other})


def rows_of(backends: Sequence[str], batches: Sequence[int] = BATCHES, **other: Any) -> list[Row]:
    """Both modes of some backends at some batches."""
    return [
        row(backend, batch, mode=mode, **other)
        for backend in backends
        for mode in ("engine", "host")
        for batch in batches
    ]


def layers(batch: int = 256, precision: str = "int8") -> LayerProfile:
    """A profile whose layers are named as TensorRT 8.6 names them."""
    stem = "backbone.conv1.weight + backbone.conv1.weight_QuantizeLinear + backbone.conv1/Conv + backbone.relu/Relu"
    last = "backbone.layer1.0.conv3/Conv + backbone.layer1.0/Add + backbone.layer1.0.relu/Relu_3"
    times = (
        LayerTime(name="input_QuantizeLinear", ms=0.09, kind="Reformat"),
        LayerTime(name=f"Reformatting CopyNode for Input Tensor 0 to {last}", ms=0.02, kind="Reformat"),
        LayerTime(name=f"{stem} + backbone.maxpool/MaxPool", ms=0.24, kind="CaskConvActPool"),
        LayerTime(name="backbone.layer1.0.conv2/Conv + backbone.layer1.0.relu/Relu_2", ms=0.08, kind="CaskConvolution"),
        LayerTime(name=last, ms=0.22, kind="CaskConvolution"),
        LayerTime(name="final_layers.0/Conv || final_layers.1/Conv", ms=0.01, kind="CaskConvolution"),
    )
    return LayerProfile(plan="m.int8.plan", precision=precision, batch=batch, layers=times)


def work() -> Work:
    """Of the full network."""
    return count_network(64)


def torch_side(**other: Any) -> BenchFile:
    """All backends of the torch interpreter; one case ran out of memory."""
    names = [name for name in KINDS if not name.startswith("trt") and name != "ort-int8"]
    kept = [each for each in rows_of(names) if (each.backend, each.batch) != ("torch-fp32", 256)]
    lost = [skipped("torch-fp32", 256, "out of memory", mode=mode) for mode in ("engine", "host")]
    return run([*kept, *lost], ceilings=CEILINGS, work=work(), **other)


def engine_side(**other: Any) -> BenchFile:
    """Both engines of the other interpreter of the same machine."""
    return run(rows_of(["trt-fp16", "trt-int8"]), ENGINE_SIDE, layers=(layers(),), **other)
