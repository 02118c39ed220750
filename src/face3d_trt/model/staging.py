"""Numpy arrays to a GPU and back through page-locked memory, with copies and compute overlapped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    HostArray = npt.NDArray[Any]

DEPTH = 3  # batches in flight: one on its way up, one computing, one on its way down
_TRIALS = 5
_LARGE = 1 << 20  # values of a result that torch copies with all its threads


class Lane:
    """Page-locked memory and GPU memory of one batch in flight."""

    def __init__(self, images: HostArray, device: torch.device, parallel: bool) -> None:
        kind = torch.from_numpy(np.empty(0, images.dtype)).dtype
        self._room = torch.empty(images.shape, dtype=kind, pin_memory=True)
        self._pixels = torch.empty_like(self._room, device=device)
        self._answers: tuple[Tensor, ...] = ()
        self._parallel = parallel
        self._uploaded, self._done = _event(), _event()

    def submit(self, images: HostArray, upload: torch.cuda.Stream, run: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
        """Begin: copy up on the stream `upload`; compute, and copy down, on the current one."""
        self._done.synchronize()  # of this lane's former batch
        fill(self._room, images, self._parallel)
        compute = torch.cuda.current_stream(self._pixels.device)
        with torch.cuda.stream(upload):
            self._pixels.copy_(self._room, non_blocking=True)
            self._uploaded.record(upload)
        compute.wait_event(self._uploaded)
        results = run(self._pixels)
        if not self._answers:
            self._answers = tuple(torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in results)
        for answer, result in zip(self._answers, results, strict=True):
            answer.copy_(result, non_blocking=True)
        self._done.record(compute)

    def collect(self) -> list[HostArray]:
        """Wait, and give the results in arrays of their own."""
        self._done.synchronize()
        return [each.clone().numpy() if each.numel() > _LARGE else each.numpy().copy() for each in self._answers]


class Lanes:
    """The lanes of one shape, in turn."""

    def __init__(self, images: HostArray, device: torch.device) -> None:
        parallel = torch_is_faster(images)
        self._lanes = [Lane(images, device, parallel) for _ in range(DEPTH)]
        self._turn = 0

    def next(self) -> Lane:
        """The lane whose batch is longest ago."""
        self._turn = (self._turn + 1) % DEPTH
        return self._lanes[self._turn]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]


def fill(room: Tensor, images: HostArray, parallel: bool) -> None:
    """Copy pictures into page-locked memory, with all of torch's threads or with one."""
    if parallel and images.flags.c_contiguous and images.flags.writeable:  # what torch.from_numpy takes in silence
        room.copy_(torch.from_numpy(images))
    else:
        np.copyto(room.numpy(), images)


def torch_is_faster(images: HostArray) -> bool:
    """Whether torch's copy with many threads is faster than numpy's with one; for one picture waking them is dear."""
    room = torch.from_numpy(np.empty_like(images, order="C"))
    best = {parallel: min(_seconds(room, images, parallel) for _ in range(_TRIALS)) for parallel in (False, True)}
    return best[True] < best[False]


def _seconds(room: Tensor, images: HostArray, parallel: bool) -> float:
    begun = time.perf_counter()
    fill(room, images, parallel)
    return time.perf_counter() - begun
