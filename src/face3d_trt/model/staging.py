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
    """Page-locked memory and GPU memory of one batch in flight.

    Args:
        images: Of the shape and type that it is for.
        device: The GPU.
        upload: The stream that copies up.
        parallel: How the page-locked memory is filled, see `fill`.
    """

    def __init__(self, images: HostArray, device: torch.device, upload: torch.cuda.Stream, parallel: bool) -> None:
        kind = torch.from_numpy(np.empty(0, images.dtype)).dtype
        self._room = torch.empty(images.shape, dtype=kind, pin_memory=True)
        self._pixels = torch.empty_like(self._room, device=device)
        self._upload = upload
        upload.wait_stream(torch.cuda.current_stream(device))  # which may still use what this memory was before
        self._answers: tuple[Tensor, ...] = ()
        self._parallel = parallel
        self._uploaded, self._done = _event(), _event()

    def submit(self, images: HostArray, run: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
        """Begin: copy up on the stream for that; compute, and copy down, on the current one."""
        fill(self._room, images, self._parallel)
        compute = torch.cuda.current_stream(self._pixels.device)
        with torch.cuda.stream(self._upload):
            self._pixels.copy_(self._room, non_blocking=True)
            self._uploaded.record(self._upload)
        compute.wait_event(self._uploaded)
        results = run(self._pixels)
        if not self._answers:
            self._answers = tuple(torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in results)
        for answer, result in zip(self._answers, results, strict=True):
            answer.copy_(result, non_blocking=True)
        self._done.record(compute)

    def wait(self) -> None:
        """Wait until nothing of its batch is in flight."""
        self._done.synchronize()

    def collect(self) -> list[HostArray]:
        """Wait, and give the results in arrays of their own."""
        self.wait()
        return [each.clone().numpy() if each.numel() > _LARGE else each.numpy().copy() for each in self._answers]


class Lanes:
    """The lanes of one shape: as many as were ever in flight at once.

    Args:
        images: Of that shape.
        device: The GPU.
        upload: The stream that copies up.
    """

    def __init__(self, images: HostArray, device: torch.device, upload: torch.cuda.Stream) -> None:
        self._parallel = torch_is_faster(images)
        self._device = device
        self._upload = upload
        self._free: list[Lane] = []

    def take(self, images: HostArray) -> Lane:
        """A lane that nobody uses."""
        return self._free.pop() if self._free else Lane(images, self._device, self._upload, self._parallel)

    def give_back(self, lane: Lane) -> None:
        """The lane's results were collected, or nobody wants them; nothing of it is in flight."""
        self._free.append(lane)


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
