"""What a process tells of itself: counts, for which no package is needed, and a Prometheus endpoint."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from face3d_trt.errors import Face3DError, UsageError
from face3d_trt.monitor.counts import Counts
from face3d_trt.monitor.gpus import Gpus, GpuState
from face3d_trt.optional import require
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LOCALHOST = "127.0.0.1"


class Metrics(Counts):
    """Counts of a pipeline, with the state of its GPUs, which are asked only when somebody wants to know.

        metrics = Metrics(devices=(0,))
        metrics.queue("infer", crops.qsize, capacity=64)
        with metrics.endpoint(9400) as url, metrics.timed("infer"):
            ...
        metrics.image("written")

    Args:
        devices: GPUs to tell of, in CUDA's order; None: all; (): none.
        report: Warned once where they cannot be asked.
    """

    def __init__(self, devices: Iterable[int] | None = None, *, report: Reporter = SILENT) -> None:
        super().__init__()
        self._devices = None if devices is None else tuple(devices)
        self._report = report
        self._opening = threading.Lock()
        self._gpus: Gpus | None = None
        self._asked = False

    def gpus(self) -> tuple[GpuState, ...]:
        """The GPUs now; none where they cannot be asked."""
        with self._opening:
            if not self._asked and self._devices != ():
                try:
                    self._gpus = Gpus(self._devices)
                except Face3DError as error:
                    self._report.warn(f"no figures of the GPUs: {error}")
            self._asked = True
            return self._gpus.read() if self._gpus is not None else ()

    def registry(self) -> CollectorRegistry:
        """The metrics for prometheus-client; they are collected when they are asked for.

        Raises:
            MissingError: prometheus-client is not installed.
        """
        require("prometheus_client", "monitor", "a Prometheus endpoint")
        from prometheus_client import CollectorRegistry

        from face3d_trt.monitor.families import Families

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Families(self))
        return registry

    @contextlib.contextmanager
    def endpoint(self, port: int, address: str = LOCALHOST) -> Iterator[str]:
        """Answer Prometheus over HTTP meanwhile; gives the URL.

        Args:
            port: 0: one that is free.
            address: That it listens on; "0.0.0.0": all of this machine's. Whoever reaches it may read.

        Raises:
            MissingError: prometheus-client is not installed.
            UsageError: The port is taken, or not for this user.
        """
        registry = self.registry()
        from prometheus_client import start_http_server

        try:
            server, thread = start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"cannot listen on {address}, port {port}: {error}", allowed="a port that is free"
            ) from error
        try:
            yield f"http://{address}:{server.server_port}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def close(self) -> None:
        """End the use of NVML."""
        with self._opening:
            if self._gpus is not None:
                self._gpus.close()
            self._gpus = None
