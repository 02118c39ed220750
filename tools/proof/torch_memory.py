"""Claim 4: what PyTorch in float32 takes of the GPU, and how long, at small batches; a process for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .children import run_child

if TYPE_CHECKING:
    from .results import Settings

BATCHES = (1, 2, 4)
RUNS = 50


def run(settings: Settings) -> dict[str, Any]:
    """`{"batches": {"1": {"bytes", "by", "reserved", "ms"}}}`."""
    found = {
        str(batch): run_child("torch_memory:eager", batch=batch, device=settings.device).expect() for batch in BATCHES
    }
    return {"batches": found}


def eager(batch: int, device: int) -> dict[str, Any]:
    """In a process of its own: float32, eager, as most people run it."""
    from face3d_trt.monitor.memory import GpuMemory

    memory = GpuMemory(device)
    import torch

    from .pictures import random_input
    from .torch_best import full_model

    where = torch.device("cuda", device)
    with torch.inference_mode():
        network = full_model().network.to(where)
        rows = torch.from_numpy(random_input(batch, "float32", 0)).to(where)
        for _ in range(RUNS):
            network(rows).cpu()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(RUNS):
            network(rows)
        end.record()
        end.synchronize()
    return {
        **memory.figures(),
        "reserved": torch.cuda.memory_reserved(where),
        "ms": start.elapsed_time(end) / RUNS,
    }
