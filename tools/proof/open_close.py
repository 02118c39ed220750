"""Claim 5: an engine that is opened and closed again and again leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .children import run_child
from .stats import gpu_growth, growth

if TYPE_CHECKING:
    from .results import Settings

CYCLES = 1000
BARE = 30  # more, while nothing else holds the device's context, so that CUDA makes and destroys it each time
WARM = 20
EVERY = 10


def run(settings: Settings) -> dict[str, Any]:
    """`{"cycles", "gpu_growth", "gpu_by", "host_growth", "bare": {"cycles", ...}, "code", "stderr"}`, bytes."""
    child = run_child(
        "open_close:repeat",
        timeout_s=580,
        plan=str(settings.plan("small_fp16")),
        cycles=settings.times(CYCLES, 3 * WARM),
        bare=settings.times(BARE, 6),
        device=settings.device,
    )
    return {**child.expect(), "code": child.code, "stderr": child.stderr, "seconds": round(child.seconds, 1)}


def repeat(plan: str, cycles: int, bare: int, device: int) -> dict[str, Any]:
    """In a process of its own."""
    from face3d_trt.monitor.memory import GpuMemory, held_context

    memory = GpuMemory(device)
    with held_context(device):
        memory.process()  # who it is among all on this GPU
    alone = _cycles(plan, bare, max(1, bare // 3), 1, device, memory)
    with held_context(device):
        return {**_cycles(plan, cycles, WARM, EVERY, device, memory), "bare": alone}


def _cycles(plan: str, cycles: int, warm: int, every: int, device: int, memory: Any) -> dict[str, Any]:
    from face3d_trt import Engine
    from face3d_trt.monitor.memory import resident

    from .pictures import random_input

    images = random_input(2, "float32", 0)
    gpu, host = [], []
    for cycle in range(cycles):
        with Engine(plan, device=device) as engine:
            engine(images)
        if cycle >= warm and (cycle - warm) % every == 0:
            gpu.append(memory.sample())
            host.append(resident())
    return {
        "cycles": cycles,
        **gpu_growth(gpu),
        "host_growth": growth(host),
        "host_samples": host,
    }
