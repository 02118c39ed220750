"""What Prometheus is told, read back by its own parser and checked by its rules for names."""

from __future__ import annotations

import queue
import sys
import threading
import urllib.request

import pytest
from tests.monitor.double import NVMLError

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.monitor.counts import BATCHES, Counts, Histogram
from face3d_trt.monitor.metrics import Metrics

pytest.importorskip("prometheus_client")  # a machine that only runs engines may lack it
SOME_GPU = pytest.mark.parametrize("some_gpu", ["double", pytest.param("real", marks=pytest.mark.gpu)], indirect=True)
GAUGES = {
    "face3d_gpu_utilization_ratio": 0.93,
    "face3d_gpu_memory_used_bytes": 20 * 1024**3,
    "face3d_gpu_memory_total_bytes": 141 * 1024**3,
    "face3d_gpu_temperature_celsius": 71,
    "face3d_gpu_power_watts": 650,
    "face3d_gpu_sm_clock_hertz": 1.98e9,
    "face3d_gpu_memory_clock_hertz": 3.201e9,
}


def scraped(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Over HTTP: value by sample name and label values."""
    with metrics.endpoint(0) as url, urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def busy(devices: tuple[int, ...] | None = None) -> Metrics:
    """A pipeline that has done something."""
    metrics = Metrics(devices)
    waiting: queue.Queue[int] = queue.Queue(64)
    for each in range(7):
        waiting.put(each)
    metrics.queue("decode", waiting.qsize, 64)
    metrics.queue("infer", lambda: 3)
    metrics.image("written", 90)
    metrics.image("no face")
    for size in (1, 2, 3, 64, 2000):
        metrics.batch(size)
    metrics.took("infer", 0.004)
    metrics.took("infer", 0.006)
    metrics.batch_limit(0, lambda: 32)
    return metrics


def test_gpus_are_told_in_base_units(fake) -> None:
    fake()
    found = scraped(Metrics())
    assert {name: found[name][("0",)] for name in GAUGES} == pytest.approx(GAUGES)
    assert found["face3d_gpu_info"] == {("0", "NVIDIA H200"): 1}
    assert {reason for (_, reason), on in found["face3d_gpu_throttled"].items() if on} == {
        "power cap",
        "thermal slowdown",
    }


def test_nvml_is_asked_at_every_scrape_and_only_then(fake) -> None:
    double = fake()
    metrics = Metrics()
    assert double.inits == 0
    first = scraped(metrics)["face3d_gpu_energy_joules_total"][("0",)]
    assert scraped(metrics)["face3d_gpu_energy_joules_total"][("0",)] == first + 1
    metrics.close()
    assert double.inits == double.shutdowns == 1


def test_what_a_gpu_does_not_tell_has_no_sample(fake) -> None:
    fake(nvmlDeviceGetPowerUsage=NVMLError("Not Supported"))
    found = scraped(Metrics())
    assert "face3d_gpu_power_watts" not in found
    assert "face3d_gpu_temperature_celsius" in found


def test_a_pipeline_tells_what_it_has_done() -> None:
    found = scraped(busy(()))
    assert found["face3d_images_total"] == {("written",): 90, ("no face",): 1}
    assert found["face3d_queue_length"] == {("decode",): 7, ("infer",): 3}
    assert found["face3d_queue_capacity"] == {("decode",): 64}
    assert found["face3d_batch_limit"] == {("0",): 32}
    sizes = {float(bound): count for (bound,), count in found["face3d_batch_size_bucket"].items()}
    assert [sizes[bound] for bound in (1, 2, 4, 32, 64, 1024, float("inf"))] == [1, 2, 3, 3, 4, 4, 5]
    assert (found["face3d_batch_size_count"][()], found["face3d_batch_size_sum"][()]) == (5, 2070)
    assert found["face3d_stage_seconds_count"] == {("decode",): 0, ("infer",): 2}
    assert found["face3d_stage_seconds_sum"][("infer",)] == pytest.approx(0.010)
    assert found["face3d_stage_seconds_bucket"][("0.005", "infer")] == 1


@SOME_GPU
@pytest.mark.usefixtures("some_gpu")
def test_the_strict_parser_takes_it_too() -> None:
    """OpenMetrics checks what the older format leaves open: counters' names, buckets' order, counts against +Inf."""
    from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict_families

    metrics = busy()
    families = {family.name: family for family in strict_families(openmetrics(metrics.registry()).decode())}
    metrics.close()
    assert families["face3d_images"].type == "counter"
    assert families["face3d_gpu_energy_joules"].type == "counter"
    assert families["face3d_stage_seconds"].type == "histogram"
    assert all(family.documentation.endswith(".") for family in families.values())
    assert families["face3d_gpu_temperature_celsius"].samples[0].value > 10


def test_without_a_gpu_the_rest_is_told_and_one_warning_says_why(fake) -> None:
    fake(nvmlInit=NVMLError("Driver Not Loaded"))
    said: list[str] = []

    class Report:
        warn = staticmethod(said.append)

    metrics = Metrics(report=Report())
    metrics.image("written")
    for _ in range(2):
        found = scraped(metrics)
        assert found["face3d_images_total"] == {("written",): 1}
        assert "face3d_gpu_info" not in found
    assert len(said) == 1
    assert "Driver Not Loaded" in said[0]


def test_counting_needs_no_prometheus_client(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert busy(()).progress().images == {"written": 90, "no face": 1}
    with pytest.raises(MissingError, match="prometheus_client"):
        Metrics().registry()


def test_nothing_is_lost_between_threads() -> None:
    counts = Counts()

    def work() -> None:
        for _ in range(2000):
            counts.image("written")
            counts.batch(4)
            with counts.timed("infer"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    progress = counts.progress()
    assert progress.images == {"written": 16_000}
    assert (progress.batches, progress.batched, progress.stages["infer"].calls) == (16_000, 64_000, 16_000)


def test_a_bound_belongs_to_its_class() -> None:
    histogram = Histogram(BATCHES)
    for value in (1, 2, 1024, 1025):
        histogram.add(value)
    assert (histogram.counts[0], histogram.counts[1], histogram.counts[10], histogram.counts[11]) == (1, 1, 1, 1)


def test_work_that_fails_took_its_time_too() -> None:
    counts = Counts()
    with pytest.raises(ZeroDivisionError), counts.timed("infer"):
        _ = 1 / 0
    assert counts.progress().stages["infer"].calls == 1


def test_a_queue_that_was_closed_has_no_length() -> None:
    counts = Counts()

    def length() -> int:
        raise ValueError("Queue is closed")

    counts.queue("write", length, 8)
    assert counts.progress().stages["write"].queue is None


def test_a_port_that_is_taken_is_an_answer() -> None:
    with Metrics(()).endpoint(0) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(UsageError, match=f"port {port}"), Metrics(()).endpoint(port):
            pass
    with Metrics(()).endpoint(port):  # free again
        pass
