"""CUDA graphs through cuda-python, which is optional: pycuda has none."""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Callable
from typing import Any, Protocol

from face3d_trt.errors import EngineError

_CAPTURE = threading.Lock()  # one capture at a time in the process


class Graph(Protocol):
    """Work that was captured on a stream."""

    def launch(self) -> None:
        """Put it on that stream again."""

    def close(self) -> None:
        """Destroy it; launches that are on their way still finish. Nothing happens the second time."""


class GraphMaker(Protocol):
    """What captures."""

    def capture(self, stream: int, work: Callable[[], None]) -> Graph:
        """Capture what `work` puts on a stream; none of it runs.

        Raises:
            EngineError: CUDA refuses, for instance because something in it waits for the GPU.
        """


def find_graphs() -> GraphMaker | None:
    """cuda-python's; None where it is not installed."""
    try:
        return CudaGraphs(importlib.import_module("cuda.bindings.driver"))
    except (ImportError, OSError, RuntimeError):  # not installed, or for another driver
        return None


class CudaGraphs:
    """Captures with cuda-python.

    Args:
        driver: Its module `cuda.bindings.driver`.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def capture(self, stream: int, work: Callable[[], None]) -> CudaGraph:
        """See GraphMaker.

        Thread-local mode: other threads may allocate and launch meanwhile. This thread must not, so the garbage
        collector, which might free somebody's memory here, has a rest.
        """
        driver = self._driver
        handle = driver.CUstream(stream)
        collects = gc.isenabled()
        with _CAPTURE:
            gc.disable()
            try:
                try:  # the begin too: Ctrl-C may come right after it
                    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                    self._ask(driver.cuStreamBeginCapture, handle, mode)
                    work()
                finally:
                    code, graph = driver.cuStreamEndCapture(handle)
            finally:
                if collects:
                    gc.enable()
        if int(code):
            raise EngineError(f"CUDA refuses the capture of a graph: {code.name}")
        try:
            made = self._ask(driver.cuGraphInstantiate, graph, 0)
        finally:
            driver.cuGraphDestroy(graph)
        self._ask(driver.cuGraphUpload, made, handle)
        return CudaGraph(driver, made, handle)

    def _ask(self, function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
        code, *values = function(*arguments)
        if int(code):
            raise EngineError(f"{function.__name__} failed: {code.name}")
        return values[0] if values else None


class CudaGraph:
    """See Graph."""

    __slots__ = ("_driver", "_made", "_run", "_stream")

    def __init__(self, driver: Any, made: Any, stream: Any) -> None:
        self._driver, self._made, self._stream, self._run = driver, made, stream, driver.cuGraphLaunch

    def launch(self) -> None:
        """See Graph.

        Raises:
            EngineError: CUDA failed, perhaps in earlier work.
        """
        (code,) = self._run(self._made, self._stream)
        if code:
            raise EngineError(f"cuGraphLaunch failed: {code.name}")

    def close(self) -> None:
        """See Graph."""
        made, self._made = self._made, None
        if made is not None:
            self._driver.cuGraphExecDestroy(made)
