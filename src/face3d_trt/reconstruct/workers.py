"""A process that reads, detects, aligns, bakes and writes: what is asked for next, until it is told to end."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy.typing as npt

from face3d_trt.errors import Face3DError
from face3d_trt.reconstruct.clock import Clock
from face3d_trt.reconstruct.finish import Finisher, Prepared
from face3d_trt.reconstruct.messages import Answer, Broken, Setup, Task
from face3d_trt.reconstruct.preparing import DIED, Preparer
from face3d_trt.reconstruct.results import WORK, Failure, line
from face3d_trt.reconstruct.shared import Bays, Memory

if TYPE_CHECKING:
    import numpy as np

    from face3d_trt.faces.images import Pixels
    from face3d_trt.reconstruct.sources import Item


def work(connection: Connection, memory: Memory, number: int) -> None:
    """The process's main loop: first a Setup, then Tasks, until None or the end of the connection."""
    setup: Setup | None = connection.recv()
    if setup is None:
        return
    try:
        worker = Worker(setup, memory, number)
        while task := connection.recv():
            connection.send(worker.do(task))
    except Face3DError as error:
        connection.send(Broken(error))
    except Exception as error:  # a mistake of ours: say so rather than die without a word
        connection.send(Broken(Face3DError(f"a worker failed: {type(error).__name__}: {error}")))


class Worker:
    """Does tasks. One for each process, since detector and decoder are not shared.

    Args:
        setup: What the run is about.
        memory: Of the bays.
        number: Of the process in the run.
    """

    def __init__(self, setup: Setup, memory: Memory, number: int) -> None:
        if not setup.crops_alone:
            be_one_thread()
        self._bays, self._clock = Bays(memory, *setup.bays), Clock()
        self._preparer = Preparer(setup, self._bays, self._clock)
        self._finisher = Finisher(setup, setup.output / WORK / str(number), self._clock.timed)

    def do(self, task: Task) -> Answer:
        """One task.

        Raises:
            MissingError: A package is not installed; StorageError where the disk is full.
        """
        if task.kind == "finish":
            return self._finish(task)
        return self._preparer.frame(task) if task.kind == "frame" else self._preparer.prepare(task)

    def _finish(self, task: Task) -> Answer:
        at = self._bays.at(task.bay)
        lines, counts, failures = [], Counter[str](), []
        for index, (item, outcome) in enumerate(zip(task.items, pickle.loads(task.found), strict=True)):
            at[0] = index
            if index in task.dead and not isinstance(outcome, Failure):
                outcome = Failure("products", DIED)
            record = self._finisher.finish(item, outcome, *self._of(task.bay, item, outcome))
            counts[record["status"]] += item.count
            if record["status"] == "failed":
                failures.append((item.name, record["stage"], record["reason"]))
            lines.append(line(record))
        at[0] = -1
        return Answer(
            task.group,
            "finish",
            lines=b"".join(lines),
            counts=counts,
            seconds=self._clock.take(),
            failures=tuple(failures),
        )

    def _of(
        self, bay: int, item: Item, outcome: Prepared | Failure
    ) -> tuple[Callable[[], Pixels], npt.NDArray[np.float32]]:
        """Where the photo of a picture is, and the coefficients of its group."""
        shape = outcome.shape if isinstance(outcome, Prepared) else (0, 0)
        if item.kind == "rows":
            return lambda: self._bays.crops(bay, 0, 1, shape)[0], self._bays.coeffs(bay, 0, item.count)
        return lambda: self._bays.photo(bay, shape), self._bays.coeffs(bay, 0, self._bays.layout.rows)


def be_one_thread() -> None:
    """There is a process for each core; OpenCV's threads would be too many."""
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(1)
