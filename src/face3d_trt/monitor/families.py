"""The Prometheus metrics of this package: names, units, labels. Made when they are scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from face3d_trt.monitor.tally import THROTTLES, Reading

if TYPE_CHECKING:
    from prometheus_client import Metric

    from face3d_trt.monitor.counts import Histogram, Progress
    from face3d_trt.monitor.gpus import GpuState
    from face3d_trt.monitor.metrics import Metrics

MHZ = 1e6
GPU_GAUGES: tuple[tuple[str, str, Callable[[Reading], float | None]], ...] = (
    ("face3d_gpu_utilization_ratio", "Share of the time with a kernel running.", lambda r: r.utilization),
    ("face3d_gpu_memory_used_bytes", "Memory in use, by all processes.", lambda r: r.memory_used),
    ("face3d_gpu_memory_total_bytes", "Memory.", lambda r: r.memory_total),
    ("face3d_gpu_temperature_celsius", "Temperature of the chip.", lambda r: r.temperature_c),
    ("face3d_gpu_power_watts", "Power of the board.", lambda r: r.watts),
    ("face3d_gpu_sm_clock_hertz", "Clock of the multiprocessors.", lambda r: r.sm_mhz and r.sm_mhz * MHZ),
    ("face3d_gpu_memory_clock_hertz", "Clock of the memory.", lambda r: r.memory_mhz and r.memory_mhz * MHZ),
)


class Families(Collector):
    """Asks `metrics` when Prometheus asks; what is not known has no sample."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        yield from of_gpus(self._metrics.gpus())
        yield from _of_progress(self._metrics.progress())
        batches, stages = self._metrics.histograms()
        yield _histogram("face3d_batch_size", "Images in a batch given to a GPU.", (), [((), batches)])
        text = "Time of a piece of work of a stage, an image or a batch."
        yield _histogram("face3d_stage_seconds", text, ("stage",), [((name,), each) for name, each in stages.items()])


def of_gpus(gpus: tuple[GpuState, ...]) -> Iterator[Metric]:
    """Those of the GPUs."""
    for name, text, figure in GPU_GAUGES:
        yield _gauge(name, text, ("gpu",), (((str(gpu.index),), figure(gpu.reading)) for gpu in gpus))
    energy = CounterMetricFamily("face3d_gpu_energy_joules", "Energy since the driver was loaded.", labels=("gpu",))
    about = InfoMetricFamily("face3d_gpu", "What the GPU is.", labels=("gpu",))
    for gpu in gpus:
        about.add_metric((str(gpu.index),), {"name": gpu.name})
        if gpu.reading.energy_j is not None:
            energy.add_metric((str(gpu.index),), gpu.reading.energy_j)
    yield energy
    yield about
    reasons = (
        ((str(gpu.index), word), float(word in gpu.reading.throttled)) for gpu in gpus for word in THROTTLES.values()
    )
    yield _gauge("face3d_gpu_throttled", "1 while this reason holds the clocks down.", ("gpu", "reason"), reasons)


def _of_progress(progress: Progress) -> Iterator[Metric]:
    stages = progress.stages.items()
    lengths, capacities = (((n,), s.queue) for n, s in stages), (((n,), s.capacity) for n, s in stages)
    yield _gauge("face3d_queue_length", "Images that wait for a stage.", ("stage",), lengths)
    yield _gauge("face3d_queue_capacity", "Images that may wait for a stage.", ("stage",), capacities)
    limits = (((str(device),), limit) for device, limit in progress.batch_limits.items())
    text = "Largest batch that the GPU is given now, where a limit on temperature or memory holds it down."
    yield _gauge("face3d_batch_limit", text, ("gpu",), limits)
    images = CounterMetricFamily("face3d_images", "Images that are done, by outcome.", labels=("outcome",))
    for outcome, count in progress.images.items():
        images.add_metric((outcome,), count)
    yield images


def _gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float | None]]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, figure in samples:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def _histogram(
    name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], Histogram]]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in samples:
        so_far, buckets = 0, []
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            so_far += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(so_far)))
        family.add_metric(values, buckets, histogram.total)
    return family
