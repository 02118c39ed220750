"""Claims 2 and 3: the rival. PyTorch at its best: half, channels_last, `torch.compile(mode="reduce-overhead")`."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from face3d_trt.bench.timing import fastest, latencies, steady

from .pictures import SETS, random_input

if TYPE_CHECKING:
    from torch import nn

    from .results import Settings

BATCHES = (256, 64, 1)
CALLS = 5000  # of batch 1
WINDOW_S = 0.25


def run(settings: Settings) -> dict[str, Any]:
    """`{"engine_only": {"256": {"ms", "rate", ...}}, "host_to_host": {"1": {"ms", "single"}}, "compile_s": {...}}`.

    `engine_only`: half input on the GPU; `ms` back to back, `single` one call at a time. `host_to_host`: uint8
    (batch, 224, 224, 3) and float32 coefficients in numpy arrays, through pinned memory, one batch after the other, by
    the faster way to fill that memory.
    """
    import torch

    torch.cuda.set_device(settings.device)
    found: dict[str, Any] = {"engine_only": {}, "host_to_host": {}, "compile_s": {}}
    with torch.no_grad():
        for batch in BATCHES:
            found["engine_only"][str(batch)] = _resident(settings, batch, found["compile_s"])
            print(f"batch {batch}: {found['engine_only'][str(batch)]}", flush=True)
        for batch in (256, 1):
            found["host_to_host"][str(batch)] = _with_host(settings, batch)
            print(f"batch {batch}, host to host: {found['host_to_host'][str(batch)]}", flush=True)
    return found


def full_network() -> nn.Module:
    """A new copy of the full-size stand-in's network with the weights that `standin --size full` writes."""
    return copy.deepcopy(_seeded())


@functools.cache
def _seeded() -> nn.Module:
    import torch

    from face3d_trt.model.network import FULL_WIDTH
    from face3d_trt.model.seeded import seeded_network

    return seeded_network(FULL_WIDTH, torch.Generator().manual_seed(0)).eval()


def _compiled(module: nn.Module) -> Any:
    import torch

    torch.compiler.reset()
    return torch.compile(module, mode="reduce-overhead", dynamic=False)


def _half() -> nn.Module:
    import torch

    network: Any = full_network().cuda().half()  # torch's types do not know memory_format of a module
    return cast("nn.Module", network.to(memory_format=torch.channels_last))


def _resident(settings: Settings, batch: int, compile_s: dict[str, float]) -> dict[str, Any]:
    import torch

    device = torch.device("cuda", settings.device)
    network = _compiled(_half())
    sets = (torch.from_numpy(random_input(batch, "float32", seed)) for seed in range(SETS))
    inputs = [rows.to(device).half().to(memory_format=torch.channels_last) for rows in sets]
    turns = itertools.cycle(inputs)
    begun = time.monotonic()
    for _ in range(3):  # compiles, then captures its graph
        network(next(turns))
    torch.cuda.synchronize()
    compile_s[str(batch)] = round(time.monotonic() - begun, 1)
    window = _window(lambda: network(next(turns)))
    figures = steady(window)
    single = None
    if batch == 1:
        single = latencies([_timed(lambda: network(next(turns))) for _ in range(settings.times(CALLS, 50))])
    return {"ms": figures.value, "rate": batch / figures.value * 1000, **figures.to_json(), "single": single}


def _window(call: Callable[[], Any]) -> Callable[[], float]:
    """Milliseconds of a call, by CUDA events around WINDOW_S of them; after a second of warm-up."""
    import torch

    def window(loops: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(loops):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / loops

    begun, loops = time.monotonic(), 3
    while time.monotonic() - begun < 1:
        loops = max(5, round(WINDOW_S * 1000 / window(loops)))
    return lambda: window(loops)


def _timed(call: Callable[[], Any]) -> int:
    """Nanoseconds of one call on the GPU."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return round(start.elapsed_time(end) * 1e6)


def _with_host(settings: Settings, batch: int) -> dict[str, Any]:
    """Numpy to numpy, by the host's clock.

    torch copies even 150 kB, one picture, with all its threads, and waking many for so little may cost more than the
    copy; numpy copies with one. So both are tried.
    """
    import numpy as np
    import torch
    from torch import nn

    class Whole(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            image = pixels.permute(0, 3, 1, 2).half() / 255  # NHWC in memory: channels_last as it is
            coeffs: torch.Tensor = self.network(image)
            return coeffs.float()

    device = torch.device("cuda", settings.device)
    network = _compiled(Whole(_half()))
    turns = itertools.cycle([random_input(batch, "uint8", seed) for seed in range(SETS)])
    pinned = torch.empty((batch, 224, 224, 3), dtype=torch.uint8, pin_memory=True)
    pixels = torch.empty_like(pinned, device=device)
    answer = torch.empty((batch, 257), dtype=torch.float32, pin_memory=True)
    room, coeffs, stream = pinned.numpy(), answer.numpy(), torch.cuda.current_stream()

    def call(fill: Callable[[Any], object]) -> int:
        rows = next(turns)
        begun = time.perf_counter_ns()
        fill(rows)
        pixels.copy_(pinned, non_blocking=True)
        answer.copy_(network(pixels), non_blocking=True)
        stream.synchronize()
        coeffs.copy()
        return time.perf_counter_ns() - begun

    ways = {
        "numpy": functools.partial(call, lambda rows: np.copyto(room, rows)),
        "torch": functools.partial(call, lambda rows: pinned.copy_(torch.from_numpy(rows))),
    }
    for _ in range(3):  # compiles, then captures its graph
        ways["numpy"]()
    gc.collect()
    gc.disable()  # as where the engine is timed
    try:
        best, trials = fastest(ways, settings.times(200, 5))
        single = latencies([ways[best]() for _ in range(settings.times(CALLS if batch == 1 else 200, 10))])
    finally:
        gc.enable()
    rate = batch / single["p50"] * 1000
    return {"ms": single["p50"], "rate": rate, "single": single, "filled_by": best, "trials": trials}
