"""Copies on the host that are too large for one core: one reaches 10 GB/s, a GPU's link takes five times as much."""

from __future__ import annotations

import functools
import os
import threading
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

LARGE = 4 << 20  # bytes from which on a copy is shared
_SHARE = 2 << 20  # bytes that are worth another thread's while
_THREADS = 8
_hiring = threading.Lock()

Array = npt.NDArray[Any]
_Part = tuple[Array, Array, "SimpleQueue[BaseException | None]"]


def copy(target: Array, source: Array) -> None:
    """`target[:] = source`, by several threads if it is large. numpy lets go of the interpreter's lock meanwhile.

    Args:
        target: Of the same shape and dtype.
        source: Any strides.
    """
    if target.nbytes < LARGE or len(target) == 1:
        target[...] = source
        return
    with _hiring:
        crew = _crew(os.getpid())
    count = min(crew.threads + 1, len(target), target.nbytes // _SHARE)
    cuts = [len(target) * index // count for index in range(count + 1)]
    done: SimpleQueue[BaseException | None] = SimpleQueue()
    for start, stop in pairwise(cuts[1:]):
        crew.parts.put((target[start:stop], source[start:stop], done))
    try:
        np.copyto(target[: cuts[1]], source[: cuts[1]])
    finally:
        errors = [error for error in [done.get() for _ in range(count - 1)] if error is not None]
    if errors:
        raise errors[0]


class _Crew:
    """Daemon threads, as a call may come from a thread that outlives the interpreter's shutdown of thread pools."""

    def __init__(self) -> None:
        self.threads = max(1, min(_THREADS, len(os.sched_getaffinity(0))) - 1)
        self.parts: SimpleQueue[_Part] = SimpleQueue()
        for index in range(self.threads):
            threading.Thread(target=_work, args=(self.parts,), name=f"face3d-trt copy {index}", daemon=True).start()


@functools.cache
def _crew(pid: int) -> _Crew:  # a forked child has none of its parent's threads
    return _Crew()


def _work(parts: SimpleQueue[_Part]) -> None:
    while True:
        target, source, done = parts.get()
        try:
            np.copyto(target, source)
            done.put(None)
        except BaseException as error:
            done.put(error)
        del target, source, done
