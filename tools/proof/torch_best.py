"""Claims 2 and 3: the rival. PyTorch at its best: half, channels_last, `torch.compile(mode="reduce-overhead")`."""

from __future__ import annotations

import functools
import gc
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.timing import latencies, steady

from .pictures import SETS, random_input

if TYPE_CHECKING:
    from face3d_trt.model.fast import FastModel
    from face3d_trt.model.load import FaceModel

    from .results import Settings

BATCHES = (256, 64, 1)
CALLS = 5000  # of batch 1
WARM_UP = 30
WINDOW_S = 0.25


def run(settings: Settings) -> dict[str, Any]:
    """`{"engine_only": {"256": {"ms", "rate", ...}}, "host_to_host": {"1": {"ms", "single"}}, "compile_s": {...}}`.

    `engine_only`: half input on the GPU; `ms` back to back, `single` one call at a time. `host_to_host`: uint8
    (batch, 224, 224, 3) and float32 coefficients in numpy arrays, through pinned memory, one batch after the other.
    """
    import torch

    torch.cuda.set_device(settings.device)
    found: dict[str, Any] = {"engine_only": {}, "host_to_host": {}, "compile_s": {}}
    for batch in BATCHES:
        found["engine_only"][str(batch)] = _resident(settings, batch, found["compile_s"])
        print(f"batch {batch}: {found['engine_only'][str(batch)]}", flush=True)
    for batch in (256, 1):
        found["host_to_host"][str(batch)] = _with_host(settings, batch)
        print(f"batch {batch}, host to host: {found['host_to_host'][str(batch)]}", flush=True)
    return found


@functools.cache
def full_model() -> FaceModel:
    """The network that `standin --size full` writes, as it is loaded; without the morphable model."""
    import numpy as np
    import torch

    from face3d_trt.model.load import FaceModel
    from face3d_trt.model.network import FULL_WIDTH
    from face3d_trt.model.seeded import seeded_network

    network = seeded_network(FULL_WIDTH, torch.Generator().manual_seed(0)).eval()
    return FaceModel(network, None, np.zeros((5, 3)), "the full stand-in", None, "seeded", "")


def _compiled(settings: Settings) -> FastModel:
    import torch

    from face3d_trt.model.fast import FastModel
    from face3d_trt.model.fast_options import FastOptions

    torch.compiler.reset()
    options = FastOptions(mode="half", compile="reduce-overhead")
    return FastModel(full_model(), options, device=f"cuda:{settings.device}")


def _resident(settings: Settings, batch: int, compile_s: dict[str, float]) -> dict[str, Any]:
    import torch

    model = _compiled(settings)
    sets = (torch.from_numpy(random_input(batch, "float32", seed)) for seed in range(SETS))
    turns = itertools.cycle([model.prepare(rows) for rows in sets])
    begun = time.monotonic()
    for _ in range(3):  # compiles, then captures its graph
        model(next(turns), copy=False)
    torch.cuda.synchronize()
    compile_s[str(batch)] = round(time.monotonic() - begun, 1)
    window = _window(lambda: model(next(turns), copy=False))
    figures = steady(window)
    single = None
    if batch == 1:
        calls = settings.times(CALLS, 50)
        single = latencies([_timed(lambda: model(next(turns), copy=False)) for _ in range(calls)])
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
    """Numpy to numpy, by the host's clock, one call at a time; FastModel fills page-locked memory the faster way."""
    model = _compiled(settings)
    turns = itertools.cycle([random_input(batch, "uint8", seed) for seed in range(SETS)])

    def call() -> int:
        rows = next(turns)
        begun = time.perf_counter_ns()
        model(rows)
        return time.perf_counter_ns() - begun

    for _ in range(settings.times(WARM_UP, 5)):  # compiles, then captures its graph
        call()
    gc.collect()
    gc.disable()  # as where the engine is timed
    try:
        single = latencies([call() for _ in range(settings.times(CALLS if batch == 1 else 200, 10))])
    finally:
        gc.enable()
    return {"ms": single["p50"], "rate": batch / single["p50"] * 1000, "single": single}
