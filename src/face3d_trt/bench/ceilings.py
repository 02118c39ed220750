"""What this machine reaches at its best: matrix products, memory, copies. The roofline's ceilings, measured here.

Everything runs on random numbers, as the models do: zeros draw less power, and clocks rise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.records import Ceilings
from face3d_trt.optional import require
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    import torch

_WARM_UP_S = 0.3  # clocks rise, libraries choose their kernels
_WINDOW_S = 0.1
_WINDOWS = 5
_SIDES = (4096, 8192, 16384)  # of square matrices, on a GPU; the best counts
_FP32_SIDES = (4096, 8192)  # products without tensor cores are ten times as slow, and no faster at 16384
_CPU_SIDES = (1024, 2048)
_DEVICE_BYTES = 1 << 30  # many times any cache
_CPU_BYTES = 256 << 20
_COPY_BYTES = 256 << 20

Call = Callable[[], object]
Timer = Callable[[Call], float]  # seconds of one call


def measure_ceilings(device: int | None, report: Reporter = SILENT) -> Ceilings:
    """Measure the ceilings with torch: some ten seconds on a GPU, a few on a CPU.

    What cannot be measured (memory is short, or this torch has no such product on this device) is None, with a warning.

    Args:
        device: Index of the GPU; None: the CPU, with as many threads as torch takes.
        report: Told what is measured.

    Raises:
        MissingError: torch is not installed.
    """
    torch = require("torch", "export", "measuring the ceilings")
    steps = _cpu_steps(torch) if device is None else _gpu_steps(torch, device)
    found: dict[str, float] = {}
    for name, step in steps.items():
        if (rate := _measured(name, step, report)) is not None:
            found[name] = rate
            report.stage(f"ceiling    {name} {rate:.3g}/s")
    return Ceilings(**found)


def _measured(name: str, step: Callable[[], float], report: Reporter) -> float | None:
    try:
        return step()
    except (RuntimeError, NotImplementedError) as error:  # torch's out-of-memory error is a RuntimeError
        report.warn(f"ceiling {name} was not measured: {' '.join(str(error).split())[:200]}")
        return None


def _gpu_steps(torch: Any, index: int) -> dict[str, Callable[[], float]]:
    device = torch.device("cuda", index)
    timer = _event_timer(torch, device)

    def floats(dtype: torch.dtype, sides: tuple[int, ...], precision: str) -> float:
        with torch.cuda.device(device), _products(torch, precision):
            return max(_product_rate(torch, timer, device, dtype, side) for side in sides)

    def int8() -> float:
        with torch.cuda.device(device):
            return max(_int8_rate(torch, timer, device, side) for side in _SIDES)

    def memory() -> float:
        with torch.cuda.device(device):
            nbytes = min(_DEVICE_BYTES, torch.cuda.mem_get_info(device)[0] // 4)
            source = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=device)
            target = torch.empty_like(source)
            return float(2 * nbytes / timer(lambda: target.copy_(source)))

    def copies(*, upload: bool) -> float:
        with torch.cuda.device(device):
            host = torch.randint(0, 256, (_COPY_BYTES,), dtype=torch.uint8).pin_memory()
            there = host.to(device)
            source, target = (host, there) if upload else (there, host)
            return _COPY_BYTES / timer(lambda: target.copy_(source, non_blocking=True))

    return {
        "fp32_flops": lambda: floats(torch.float32, _FP32_SIDES, "highest"),
        "tf32_flops": lambda: floats(torch.float32, _SIDES, "high"),
        "fp16_flops": lambda: floats(torch.float16, _SIDES, "highest"),
        "int8_ops": int8,
        "memory_bytes_per_s": memory,
        "upload_bytes_per_s": lambda: copies(upload=True),
        "download_bytes_per_s": lambda: copies(upload=False),
    }


def _cpu_steps(torch: Any) -> dict[str, Callable[[], float]]:
    device = torch.device("cpu")

    def memory() -> float:
        source = torch.randint(0, 256, (_CPU_BYTES,), dtype=torch.uint8)
        target = torch.empty_like(source)
        return 2 * _CPU_BYTES / _host_timer(lambda: target.copy_(source))

    # No int8: torch's product of int8 matrices on a CPU is slower than what ONNX Runtime does, so it is no ceiling.
    return {
        "fp32_flops": lambda: max(
            _product_rate(torch, _host_timer, device, torch.float32, side) for side in _CPU_SIDES
        ),
        "memory_bytes_per_s": memory,
    }


def _product_rate(torch: Any, timer: Timer, device: torch.device, dtype: torch.dtype, side: int) -> float:
    """Operations per second of a square matrix product, a multiply-add counted as two."""
    left, right = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty(side, side, dtype=dtype, device=device)
    with torch.inference_mode():
        return float(2 * side**3 / timer(lambda: torch.mm(left, right, out=out)))


def _int8_rate(torch: Any, timer: Timer, device: torch.device, side: int) -> float:
    """The same in int8 with int32 sums; the right matrix lies column by column, as tensor cores want it."""
    left, right = (torch.randint(-128, 128, (side, side), dtype=torch.int8, device=device) for _ in range(2))
    with torch.inference_mode():
        return float(2 * side**3 / timer(lambda: torch._int_mm(left, right.t())))


@contextmanager
def _products(torch: Any, precision: str) -> Iterator[None]:
    """With torch's precision of float32 products: "highest" is float32, "high" is TF32."""
    former = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(former)


def _event_timer(torch: Any, device: torch.device) -> Timer:
    """By CUDA events on the current stream."""

    def window(call: Call, loops: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(loops):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000 / loops

    def timer(call: Call) -> float:
        call()
        torch.cuda.synchronize(device)
        return _settled(lambda loops: window(call, loops))

    return timer


def _host_timer(call: Call) -> float:
    def window(loops: int) -> float:
        begun = time.perf_counter()
        for _ in range(loops):
            call()
        return (time.perf_counter() - begun) / loops

    return _settled(window)


def _settled(window: Callable[[int], float]) -> float:
    """The median of some windows, after a warm-up.

    Args:
        window: Seconds of a call, over so many calls.
    """
    begun, once = time.perf_counter(), window(1)
    while time.perf_counter() - begun < _WARM_UP_S:
        once = window(_loops(once, _WINDOW_S / 4))
    loops = _loops(once, _WINDOW_S)
    return statistics.median(window(loops) for _ in range(_WINDOWS))


def _loops(once: float, seconds: float) -> int:
    return max(1, round(seconds / max(once, 1e-6)))
