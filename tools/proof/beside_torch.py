"""Claim 6: the runtime's contexts, buffers and streams in one process with torch, whichever was imported first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from .children import run_child

if TYPE_CHECKING:
    from .results import Settings

ROUNDS = 200
THREADS = 4
ORDERS = ("torch first", "pycuda first")


def run(settings: Settings) -> dict[str, Any]:
    """`{order: {"rounds", "wrong", "torch_wrong", "errors", "code", "stderr"}}`."""
    found = {}
    for order in ORDERS:
        child = run_child(
            "beside_torch:together",
            order=order,
            rounds=settings.times(ROUNDS, 5),
            device=settings.device,
        )
        found[order] = {**child.expect(), "code": child.code, "stderr": child.stderr}
    return found


def together(order: str, rounds: int, device: int) -> dict[str, Any]:
    """In a process of its own: torch computes in this thread while others copy through our buffers."""
    ours = _both(order, device)
    import torch

    errors, wrong, lock = list[str](), [0], threading.Lock()

    def work(seed: int) -> None:
        try:
            off = sum(_round_trip(ours, seed * rounds + turn) for turn in range(rounds))
            with lock:
                wrong[0] += off
        except Exception as error:  # whatever it is, it belongs into the result
            with lock:
                errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    torch_wrong = sum(_torch_round(torch, ours, turn) for turn in range(rounds))
    for thread in threads:
        thread.join()
    ours.close()
    after = float((torch.ones(64, 64, device=f"cuda:{device}") @ torch.ones(64, 64, device=f"cuda:{device}")).sum())
    return {
        "rounds": rounds * (THREADS + 1),
        "wrong": wrong[0],
        "torch_wrong": torch_wrong + int(after != 64.0**3),
        "errors": errors,
    }


def _both(order: str, device: int) -> Any:
    """Our device; pycuda and torch imported in this order, and the first has its context before the other comes."""
    if order == "pycuda first":
        ours = _device(device)
        _torch_begins(device)
        return ours
    _torch_begins(device)
    return _device(device)


def _device(index: int) -> Any:
    from face3d_trt.runtime.cuda import Device

    return Device(index)


def _torch_begins(index: int) -> None:
    import torch

    torch.zeros(1, device=f"cuda:{index}")


def _round_trip(device: Any, seed: int) -> int:
    """Through pinned memory to the GPU, there to another place, and back: how many values are wrong."""
    rng = np.random.default_rng(seed)
    sent = rng.integers(0, 256, 1 << 20, np.uint8)
    with device.current():
        stream = device.stream()
        there, elsewhere, pinned = device.alloc(sent.nbytes), device.alloc(sent.nbytes), device.pinned(sent.nbytes)
        pinned.array[: sent.nbytes] = sent
        device.copy_in(there.address, pinned.array, stream)
        device.copy_on(elsewhere.address, there.address, sent.nbytes, stream)
        stream.synchronize()
        pinned.array[:] = 0
        device.copy_out(pinned.array, elsewhere.address, stream)
        event = device.event()
        event.record(stream)
        event.synchronize()
        wrong = int((pinned.array[: sent.nbytes] != sent).sum())
        for memory in (there, elsewhere, pinned):
            memory.free()
        stream.close()
    return wrong


class _View:
    """Our memory as torch reads it, without a copy."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": "<f4",
            "strides": None,
            "data": (address, False),
            "stream": None,
        }


def _torch_round(torch: Any, device: Any, seed: int) -> int:
    """Torch works on our buffer, in place and on its own stream: how many values are wrong."""
    sent = np.random.default_rng(seed).random((64, 64), np.float32)
    with device.current():
        stream = device.stream()
        memory = device.alloc(sent.nbytes)
        device.copy_in(memory.address, sent, stream)
        stream.synchronize()
    tensor = torch.as_tensor(_View(memory.address, sent.shape), device=f"cuda:{device.index}")
    tensor.mul_(2).add_(1)
    product = (tensor @ torch.eye(64, device=tensor.device)).cpu().numpy()
    got = np.empty_like(sent)
    with device.current():
        device.copy_out(got, memory.address, stream)
        stream.synchronize()
        del tensor
        memory.free()
        stream.close()
    expected = sent * np.float32(2) + np.float32(1)
    # torch may multiply in TF32, which has 10 bits
    return int((got != expected).sum()) + int((np.abs(product - expected) > 4e-3).sum())
