"""One thread that does jobs in order, a bounded number of them at a time."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from weakref import finalize

from face3d_trt.errors import EngineError

_PATIENCE_S = 0.001  # between two looks for something to do
Job = tuple["Future[Any]", Callable[[], Any]]


class Worker:
    """A thread that begins with the first job and ends with `stop`, with the last reference, or with the interpreter.

    Args:
        depth: Jobs that have been taken and are not done; `submit` waits while there are as many.
    """

    def __init__(self, depth: int) -> None:
        self._room = threading.Semaphore(depth)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._end: Callable[[], object] | None = None
        self._stopped = False

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Have `work` done; waits for room. In the thread itself (a callback of a future) it makes room meanwhile.

        Raises:
            EngineError: It was stopped meanwhile.
        """
        if threading.current_thread() is not self._thread:
            self._room.acquire()
        else:
            while not self._room.acquire(timeout=_PATIENCE_S):
                _do_one(self._jobs, self._room)
        future: Future[Any] = Future()
        with self._lock:
            if self._stopped:
                self._room.release()
                raise EngineError("this engine was closed while a batch waited for room", allowed="close() afterwards")
            self._start()
            self._jobs.put((future, work))
        return future

    def stop(self) -> None:
        """Do the jobs that were taken, then end."""
        with self._lock:
            self._stopped = True
        if self._end:
            self._end()

    def _start(self) -> None:
        if self._thread is None:
            arguments = (self._jobs, self._room)  # not self, so that the last reference can go
            self._thread = threading.Thread(target=_work, args=arguments, name="face3d-submit", daemon=True)
            self._thread.start()
            self._end = finalize(self, _end, self._jobs, self._room, self._thread, os.getpid())


def _work(jobs: queue.SimpleQueue[Job | None], room: threading.Semaphore) -> None:
    while job := jobs.get():
        _do(job, room)
        del job  # an idle thread holds no arrays


def _do(job: Job, room: threading.Semaphore) -> None:
    future, work = job
    result, error = None, None
    begun = future.set_running_or_notify_cancel()
    if begun:
        try:
            result = work()
        except BaseException as raised:  # whatever it is, it belongs to whoever holds the future
            error = raised
    room.release()
    if begun and error:
        future.set_exception(error)
    elif begun:
        future.set_result(result)


def _do_one(jobs: queue.SimpleQueue[Job | None], room: threading.Semaphore) -> bool:
    """One job that waits, if there is one."""
    try:
        job = jobs.get_nowait()
    except queue.Empty:
        return False
    if job is None:
        jobs.put(None)  # for the thread itself
        return False
    _do(job, room)
    return True


def _end(
    jobs: queue.SimpleQueue[Job | None], room: threading.Semaphore, thread: threading.Thread, process: int
) -> None:
    if os.getpid() != process:  # a fork has the queue, but not the thread
        return
    if thread is threading.current_thread():  # a callback closes the engine
        while _do_one(jobs, room):
            pass
    jobs.put(None)
    if thread is not threading.current_thread():
        thread.join()
