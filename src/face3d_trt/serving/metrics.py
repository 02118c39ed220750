"""Counts of a server whose processes each count for themselves: prometheus-client's files, added up when asked.

Every process of a server has PROMETHEUS_MULTIPROC_DIR in its environment before this module is imported. The names are
those of `monitor` (docs/monitoring.md), so that `face3d-trt monitor --url` shows a server too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from face3d_trt.errors import Face3DError
from face3d_trt.monitor.counts import BATCHES, SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from face3d_trt.monitor.gpus import Gpus

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus-client's name for it
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OWN = CollectorRegistry(auto_describe=False)  # this process's; what is told comes from all files

QUEUE = Gauge(
    "face3d_queue_length", "Images that wait for a stage, or are in it.", ["stage"], registry=_OWN,
    multiprocess_mode="livesum",
)  # fmt: skip
CAPACITY = Gauge(
    "face3d_queue_capacity", "Images that may wait for a stage.", ["stage"], registry=_OWN, multiprocess_mode="livesum"
)
CONNECTIONS = Gauge("face3d_http_connections", "Open connections.", registry=_OWN, multiprocess_mode="livesum")
READY = Gauge(
    "face3d_replicas_ready", "Engines that answer.", registry=_OWN, multiprocess_mode="livemax"
)  # each front counts the same ones
IMAGES = Counter("face3d_images", "Images that are done, by outcome.", ["outcome"], registry=_OWN)
BATCH = Histogram(
    "face3d_batch_size", "Images in a batch given to an engine.", buckets=BATCHES, registry=_OWN
)  # fmt: skip
STAGE = Histogram(
    "face3d_stage_seconds", "Time of a piece of work of a stage, an image or a batch.", ["stage"], registry=_OWN,
    buckets=SECONDS,
)  # fmt: skip
REQUESTS = Counter("face3d_http_requests", "Requests, by path and status.", ["path", "status"], registry=_OWN)
LATENCY = Histogram(
    "face3d_http_request_seconds", "From a request's headers to its answer.", ["path"], registry=_OWN, buckets=SECONDS
)
RESTARTS = Counter("face3d_restarts", "Processes that died and were replaced.", ["process"], registry=_OWN)


def forget(pid: int) -> None:
    """What a process that is gone said of the present; what it has counted stays."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]


class Exposition:
    """All processes' counts, and the GPUs' figures, in Prometheus's words."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        MultiProcessCollector(self._registry, os.environ[FOLDER])  # type: ignore[no-untyped-call]
        self._registry.register(_GpuFigures())

    def text(self) -> bytes:
        """The whole page; reads files, so not for an event loop."""
        return generate_latest(self._registry)


class _GpuFigures(Collector):
    def __init__(self) -> None:
        self._gpus: Gpus | None = None
        self._asked = False

    def collect(self) -> Iterator[Metric]:
        """None where NVML is not there."""
        from face3d_trt.monitor.families import of_gpus
        from face3d_trt.monitor.gpus import Gpus

        if not self._asked:
            self._asked = True
            try:
                self._gpus = Gpus(None)
            except Face3DError:
                return
        if self._gpus is not None:
            yield from of_gpus(self._gpus.read())
