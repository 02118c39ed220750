"""A backend in a process of its own: its memory figures are clean, and what ends it ends nothing else."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.backend import Backend, Case, Ready, Skip, Source
from face3d_trt.bench.machine import resident_bytes
from face3d_trt.bench.measure import Pace, device, latency, no_collector, rate, warm_up
from face3d_trt.bench.records import Device, Memory, Row
from face3d_trt.bench.registry import make
from face3d_trt.errors import Face3DError, MissingError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from face3d_trt.bench.error import Truth
    from face3d_trt.bench.records import Arithmetic, LayerProfile

_PROFILE_S = 5.0  # about
_TRACE = 6  # lines of a traceback that the log keeps of an unknown error


@dataclass(frozen=True)
class Job:
    """What a child is to do.

    Attributes:
        backend: A key of registry.BACKENDS.
        source: What it is made from.
        cases: In order.
        pace: How long a row takes.
        truth: What is right for some pictures; None: not known.
        layers: Cases at which the plan's layers are timed, after the rows.
        log: Where its stdout and stderr go.
        deadline: Of time.monotonic, which all processes share: no case is begun that would end after it.
        share: Likewise, of this backend alone: no case but the first is begun after it.
        module: That makes the backend; None: the registry's.
    """

    backend: str
    source: Source
    cases: tuple[Case, ...]
    pace: Pace
    truth: Truth | None
    layers: tuple[Case, ...]
    log: str
    deadline: float | None = None
    share: float | None = None
    module: str | None = None


@dataclass(frozen=True)
class Started:
    """The backend is there."""

    label: str
    arithmetic: Arithmetic
    plan: str | None


@dataclass(frozen=True)
class Begun:
    """The next case has begun; `ready` once it is set up."""

    ready: bool = False


@dataclass(frozen=True)
class Measured:
    """A row, with figures or with the reason why there are none."""

    row: Row


@dataclass(frozen=True)
class Profiled:
    """The layers of a plan."""

    layers: LayerProfile


@dataclass(frozen=True)
class Failed:
    """The backend cannot be had."""

    reason: str
    missing: MissingError | None = None  # what to install


@dataclass(frozen=True)
class Done:
    """Nothing comes any more."""


Message = Started | Begun | Measured | Profiled | Failed | Done


def run(job: Job, connection: Connection) -> None:
    """The child's whole life.

    Args:
        job: What to do.
        connection: Takes messages.
    """
    _log_to(job.log)
    try:
        _work(job, connection.send)
    except MissingError as error:
        connection.send(Failed(error.problem, MissingError(error.problem, allowed=error.allowed, run=error.run)))
    except Exception as error:
        traceback.print_exc()
        connection.send(Failed(reason_of(error)))
    sys.stdout.flush()
    sys.stderr.flush()
    connection.close()
    os._exit(0)  # compilers' worker threads and CUDA's atexit handlers have nothing left to do


def _work(job: Job, send: Any) -> None:
    index = job.source.device
    _process_memory(index)  # who was there before
    backend = make(job.backend, job.source, job.module)
    backend.start()
    context = _process_memory(index)
    gc.collect()
    gc.freeze()  # a framework's hundred thousands of objects stay; without them a collection takes no time
    send(Started(backend.label, backend.arithmetic, backend.plan))
    too_large: dict[str, int] = {}
    for number, case in enumerate(job.cases):
        if job.deadline is not None and time.monotonic() + 2 * job.pace.seconds > job.deadline:
            break
        if job.share is not None and number and time.monotonic() > job.share:
            break
        send(Begun())
        if case.batch >= too_large.get(case.mode, case.batch + 1):
            send(Measured(skipped(backend, job.backend, case, "a smaller batch was out of memory already")))
            continue
        row = _row(backend, job, case, context, lambda: send(Begun(ready=True)))
        if row.skipped == OUT_OF_MEMORY:
            too_large[case.mode] = case.batch
        send(Measured(row))
    for case in job.layers:
        if job.deadline is not None and time.monotonic() + _PROFILE_S > job.deadline:
            break
        try:
            send(Profiled(backend.profile(case)))  # type: ignore[attr-defined]
        except (Skip, Face3DError) as error:
            print(f"no layers of {backend.plan} at batch {case.batch}: {error}", flush=True)
    backend.close()
    send(Done())


def _row(backend: Backend, job: Job, case: Case, context: int | None, is_ready: Any) -> Row:
    """Measure one case; whatever goes wrong is the row's reason."""
    from face3d_trt.bench.error import error_of

    begun = time.monotonic()
    print(f"{job.backend} {case}", flush=True)
    ready: Ready | None = None
    try:
        ready = backend.ready(case)
        setup = time.monotonic() - begun
        is_ready()
        error = error_of(ready, case, job.truth)
        if error == float("inf"):
            raise Skip("its coefficients are not finite")
        row = _figures(ready, job, case, context)
        return row_of(backend, job.backend, case).model_copy(update={**row, "setup_s": setup, "error": error})
    except Skip as reason:
        return skipped(backend, job.backend, case, str(reason))
    except Exception as failure:
        traceback.print_exc(limit=-_TRACE)
        return skipped(backend, job.backend, case, reason_of(failure))
    finally:
        if ready is not None:
            with contextlib.suppress(Exception):  # after an error of CUDA nothing can be freed any more
                ready.close()


def _figures(ready: Ready, job: Job, case: Case, context: int | None) -> dict[str, Any]:
    index, pace = job.source.device, job.pace
    with no_collector():
        loops = warm_up(ready, pace)
        back_to_back = rate(ready, case.batch, loops, pace)
        # Before the single calls: what NVML says of a GPU's use looks back to a time when it was as busy.
        seen = Device() if index is None else device(ready, case.batch, loops, index, pace)
        singles = latency(ready, pace, waits=case.mode == "host")
    memory = Memory(
        process=_process_memory(index), context=context, allocator=ready.allocator_peak(), host=resident_bytes()
    )
    return {"rate": back_to_back, "latency": singles, "device": seen, "memory": memory}


OUT_OF_MEMORY = "out of memory"
_NO_MEMORY = ("out of memory", "outofmemory", "too little memory", "failed to allocate", "bad_alloc", "cuda_error_out")


def reason_of(error: BaseException) -> str:
    """An error in a line; every framework's words for want of memory are the same to us."""
    problem = error.problem if isinstance(error, Face3DError) else str(error)
    words = f"{type(error).__name__} {problem}".lower()
    if isinstance(error, MemoryError) or any(mark in words for mark in _NO_MEMORY):
        return OUT_OF_MEMORY
    text = " ".join(problem.split())
    return f"{type(error).__name__}: {text[:240]}" if text else type(error).__name__


def row_of(backend: Backend | Started, name: str, case: Case) -> Row:
    """A row without figures."""
    return Row(
        backend=name,
        label=backend.label,
        arithmetic=backend.arithmetic,
        plan=backend.plan,
        mode=case.mode,
        outputs=case.outputs,
        input=case.input,
        batch=case.batch,
        height=case.height,
        width=case.width,
    )


def skipped(backend: Backend | Started, name: str, case: Case, reason: str) -> Row:
    """A row with the reason why it has no figures."""
    return row_of(backend, name, case).model_copy(update={"skipped": reason})


def _process_memory(index: int | None) -> int | None:
    if index is None:
        return None
    from face3d_trt.monitor.nvml import process_memory

    return process_memory(index)


def _log_to(path: str) -> None:
    """Frameworks speak to stdout and stderr, from C++ too."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
