"""Claim 4: GPU memory of a process that serves small batches in fp16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .children import run_child

if TYPE_CHECKING:
    from .results import Settings

RUNS = 50


def run(settings: Settings) -> dict[str, Any]:
    """`{"fp16": {"bytes", "by", "gpu_growth", "context_bytes"}}`."""
    plan = str(settings.plan("low_fp16"))
    return {"fp16": run_child("memory:serve", plan=plan, device=settings.device).expect()}


def serve(plan: str, device: int) -> dict[str, Any]:
    """In a process of its own: what is held after inference at every batch of the profile.

    `context_bytes` is what the CUDA context alone takes.
    """
    from face3d_trt import Engine
    from face3d_trt.monitor.memory import GpuMemory, held_context

    from .pictures import random_input

    memory = GpuMemory(device)
    with held_context(device):
        context = memory.figures()["bytes"]
    with Engine(plan, device=device) as engine:
        for batch in (1, 2, 3, 4):
            for _ in range(RUNS):
                engine(random_input(batch, "uint8", batch))
        return {**memory.figures(), "context_bytes": context}
