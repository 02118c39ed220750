"""A process that reads, detects, aligns, bakes and writes: what is asked for next, until it is told to end."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection

from face3d_trt.errors import Face3DError
from face3d_trt.reconstruct.finishing import Finisher
from face3d_trt.reconstruct.messages import Answer, Broken, Setup, Task
from face3d_trt.reconstruct.preparing import Clock, Preparer
from face3d_trt.reconstruct.shared import Bays, Memory


def work(connection: Connection, memory: Memory, number: int) -> None:
    """The process's main loop: first a Setup, then Tasks, until None or the end of the connection."""
    setup: Setup | None = connection.recv()
    if setup is None:
        return
    try:
        does = _abilities(setup, memory, number)
        while task := connection.recv():
            connection.send(does[task.kind](task))
    except Face3DError as error:
        connection.send(Broken(error))
    except Exception as error:  # a mistake of ours: say so rather than die without a word
        connection.send(Broken(Face3DError(f"a worker failed: {type(error).__name__}: {error}")))


def _abilities(setup: Setup, memory: Memory, number: int) -> dict[str, Callable[[Task], Answer]]:
    """What it can do, by the kind of task."""
    if not setup.crops_alone:
        _be_one_thread()
    bays, clock = Bays(memory, *setup.bays), Clock()
    preparer = Preparer(setup, bays, clock)
    finisher = Finisher(setup, bays, clock, number)
    return {"frame": preparer.frame, "prepare": preparer.prepare, "finish": finisher.finish}


def _be_one_thread() -> None:
    """There is a process for each core; OpenCV's threads would be too many."""
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(1)
