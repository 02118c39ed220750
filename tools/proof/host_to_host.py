"""Claim 3: through `Engine`, numpy arrays in and out: all of the engine's rate, and short calls that do not vary."""

from __future__ import annotations

import gc
import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.timing import Steady, latencies, steady

from .pictures import SETS, random_input

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .results import Settings

CALLS = 6000
WARM = 500
BATCH = 256
PINNED = 6  # arrays in flight: more than an engine's ring has slots
WINDOW = 160  # batches: more than half a second


def run(settings: Settings) -> dict[str, Any]:
    """`{"throughput": {precision: {"engine_only_ms", "ways": {name: {"ms", "rate", "share"}}}}, "latency": {...}}`.

    `share`: of the rate of the engine alone, measured before and after in the same process; the smaller time of the two
    counts. `latency`: `{precision: {"graphs": {"p50", ...}, "plain": {...}, "had_graphs": bool}}`.
    """
    return {
        "throughput": {precision: _throughput(settings, precision) for precision in ("int8", "fp16")},
        "latency": {precision: _latency(settings, precision) for precision in ("int8", "fp16")},
    }


def _throughput(settings: Settings, precision: str) -> dict[str, Any]:
    from face3d_trt import Engine

    plan, batch = settings.plan(f"uint8_{precision}"), min(BATCH, settings.largest)
    before = _engine_only(settings, precision, batch)
    window = settings.times(WINDOW, 8)
    found: dict[str, Any] = {}
    with Engine(plan, device=settings.device) as engine:
        ordinary = [random_input(batch, "uint8", seed) for seed in range(SETS)]
        found["map, ordinary arrays"] = steady(Mapped(engine, ordinary, window).window)
        found["submit, ordinary arrays"] = steady(Submitted(engine, ordinary, window).window)
        pinned = [engine.pinned(batch) for _ in range(PINNED)]
        for seed, array in enumerate(pinned):
            array[:] = random_input(batch, "uint8", seed)
        found["submit, pinned arrays"] = steady(Submitted(engine, pinned, window).window)
        found["one after the other"] = steady(Serial(engine, ordinary, max(8, window // 4)).window)
        found["one after the other, pinned"] = steady(Serial(engine, pinned, max(8, window // 4)).window)
        del pinned, array
    alone = min(before, _engine_only(settings, precision, batch))
    ways = {name: _way(figures, batch, alone) for name, figures in found.items()}
    print(precision, alone, ways, flush=True)
    return {"batch": batch, "engine_only_ms": alone, "engine_only_before_ms": before, "ways": ways}


def _way(figures: Steady, batch: int, alone_ms: float) -> dict[str, Any]:
    rate = batch / figures.value * 1000
    return {"ms": figures.value, "rate": rate, "share": alone_ms / figures.value, **figures.to_json()}


def _engine_only(settings: Settings, precision: str, batch: int) -> float:
    """Milliseconds of the engine alone."""
    from .bare import BareLoop, load, primary_context

    with primary_context(settings.device):
        plan = load(settings.plan(f"uint8_{precision}"))
        loop = BareLoop(plan, batch)
        milliseconds = loop.steady().value
        loop.close()
        plan.close()
    return milliseconds


class Mapped:
    """Batches through `Engine.map`, without end."""

    def __init__(self, engine: Any, arrays: Sequence[Any], batches: int) -> None:
        self._answers: Iterator[Any] = engine.map(itertools.cycle(arrays))
        self._batches = batches

    def window(self) -> float:
        """Milliseconds of a batch, with the pipeline full before and after."""
        begun = time.perf_counter()
        for _ in range(self._batches):
            next(self._answers)
        return (time.perf_counter() - begun) * 1000 / self._batches


class Submitted:
    """Batches through `Engine.submit`; an array is used again once its answer is there."""

    def __init__(self, engine: Any, arrays: Sequence[Any], batches: int) -> None:
        self._engine = engine
        self._arrays = itertools.cycle(arrays)
        self._depth = len(arrays)
        self._pending: deque[Future[Any]] = deque()
        self._batches = batches

    def window(self) -> float:
        """As in Mapped."""
        begun = time.perf_counter()
        for _ in range(self._batches):
            if len(self._pending) == self._depth:
                self._pending.popleft().result()
            self._pending.append(self._engine.submit(next(self._arrays)))
        return (time.perf_counter() - begun) * 1000 / self._batches


class Serial:
    """Each batch after the former's answer."""

    def __init__(self, engine: Any, arrays: Sequence[Any], batches: int) -> None:
        self._engine = engine
        self._arrays = itertools.cycle(arrays)
        self._batches = batches

    def window(self) -> float:
        """As in Mapped."""
        begun = time.perf_counter()
        for _ in range(self._batches):
            self._engine(next(self._arrays))
        return (time.perf_counter() - begun) * 1000 / self._batches


def _latency(settings: Settings, precision: str) -> dict[str, Any]:
    from face3d_trt import Engine

    found: dict[str, Any] = {}
    for name, graphs in (("graphs", True), ("plain", False)):
        with Engine(settings.plan(f"uint8_{precision}"), device=settings.device, graphs=graphs) as engine:
            engine.warm_up((1, 4))
            found[name] = _single_calls(settings, engine, 1)
            if graphs:
                found["had_graphs"] = bool(engine.graphs)
                found["batch 4"] = _single_calls(settings, engine, 4)
        print(precision, name, found[name], flush=True)
    return found


def _single_calls(settings: Settings, engine: Any, batch: int) -> dict[str, float]:
    """`engine(images)` by the host's clock."""
    turns = itertools.cycle([random_input(batch, "uint8", seed) for seed in range(SETS)])
    for _ in range(settings.times(WARM, 10)):
        engine(next(turns))
    took = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(settings.times(CALLS, 50)):
            images = next(turns)
            begun = time.perf_counter_ns()
            engine(images)
            took.append(time.perf_counter_ns() - begun)
    finally:
        gc.enable()
    return latencies(took)
