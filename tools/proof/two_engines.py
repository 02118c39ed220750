"""Claim 6: two engines at once, on one GPU and on two; pycuda's own arrays in and out."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from .results import NotHere

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .results import Settings

THREADS = 4  # for each engine
CALLS = 300  # of each thread
SIZES = (1, 3, 8, 33)


def run(settings: Settings) -> dict[str, Any]:
    """`{"together": {"calls", "wrong", "errors"}, "pycuda": {"wrong", "stayed"}}`."""
    from face3d_trt import Engine

    with ExitStack() as stack:
        plans = [settings.plan(f"uint8_{precision}") for precision in ("fp16", "int8")]
        engines = [stack.enter_context(Engine(plan, device=settings.device)) for plan in plans]
        together = at_once(engines, settings.times(CALLS, 5))
        arrays = with_pycuda(engines[0], settings.device)
    return {"together": together, "pycuda": arrays}


def on_two_devices(settings: Settings) -> dict[str, Any]:
    """The same with one engine on GPU 0 and one on GPU 1, under their own plans' precision."""
    from face3d_trt import Engine
    from face3d_trt.engine.gpu import visible_gpus

    gpus = visible_gpus()
    if len(gpus) < 2:
        raise NotHere(f"this machine has {len(gpus)} GPU")
    if gpus[0].name != gpus[1].name:
        raise NotHere(f"GPU 1 is another model ({gpus[1].name}), which needs a plan of its own")
    plan = settings.plan("uint8_fp16")
    with Engine(plan, device=0) as first, Engine(plan, device=1) as second:
        return {"together": at_once([first, second], settings.times(CALLS, 5))}


def at_once(engines: Sequence[Any], calls: int) -> dict[str, Any]:
    """Call engines of one input from several threads each, and hold all answers against their own, computed alone."""
    from .pictures import different_pictures

    pictures = different_pictures(max(SIZES), engines[0].inputs[0].dtype)
    alone = [{size: engine(pictures[:size])["coeffs"] for size in SIZES} for engine in engines]
    wrong, errors, lock = [0], list[str](), threading.Lock()

    def work(index: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(calls):
                size = int(rng.choice(SIZES))
                rows = engines[index](pictures[:size])["coeffs"]
                if not np.array_equal(rows, alone[index][size]):
                    with lock:
                        wrong[0] += 1
        except Exception as error:  # whatever it is, it belongs into the result
            with lock:
                errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(i, s)) for i in range(len(engines)) for s in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"calls": calls * len(threads), "wrong": wrong[0], "errors": errors}


def with_pycuda(engine: Any, device: int) -> dict[str, Any]:
    """A pycuda array in, results on the host and on the GPU: `{"wrong", "stayed"}`, differing values."""
    import pycuda.driver as cuda
    from pycuda import gpuarray

    from .bare import primary_context
    from .pictures import different_pictures

    pictures = different_pictures(8, engine.inputs[0].dtype)
    expected = engine(pictures)["coeffs"]
    with primary_context(device):
        stream = cuda.Stream()
        images = gpuarray.to_gpu_async(pictures, stream=stream)
        host = engine(images, stream=stream)["coeffs"]
        resident = engine(images, to="device", stream=stream)["coeffs"]
        stream.synchronize()
        view = np.empty(resident.shape, np.float32)
        cuda.memcpy_dtoh(view, resident.__cuda_array_interface__["data"][0])
        figures = {
            "wrong": int((host != expected).sum() + (view != expected).sum() + (resident.host() != expected).sum()),
            "stayed": list(resident.shape),
        }
        del resident, images
        stream.synchronize()
    return figures
