"""What `monitor` shows, and where it comes from: NVML here, or the Prometheus endpoint of a running process."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.monitor.counts import Progress, Stage
from face3d_trt.monitor.gpus import Gpus, GpuState
from face3d_trt.monitor.tally import THROTTLES, Reading
from face3d_trt.optional import require

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_TIMEOUT_S = 5.0
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class State:
    """GPUs and, where a process tells of it, a pipeline, at one moment.

    Attributes:
        time: Seconds since 1970.
        gpus: In CUDA's order.
        progress: Of the pipeline; None: no process was asked.
    """

    time: float
    gpus: tuple[GpuState, ...]
    progress: Progress | None = None

    def as_json(self) -> dict[str, Any]:
        """`{"time", "gpus": [{"index", "name", "utilization", ...}], "progress"}`; time is ISO 8601 in UTC."""
        return {
            "time": datetime.fromtimestamp(self.time, timezone.utc).isoformat(timespec="milliseconds"),
            "gpus": [{"index": gpu.index, "name": gpu.name, **asdict(gpu.reading)} for gpu in self.gpus],
            "progress": None if self.progress is None else asdict(self.progress),
        }


class Source(Protocol):
    """Where states come from."""

    def read(self) -> State:
        """The state now."""


class LocalSource:
    """The GPUs of this machine.

    Args:
        gpus: Which; whoever made them closes them.
    """

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus

    def read(self) -> State:
        """What they are doing now."""
        return State(time.time(), self._gpus.read())


class UrlSource:
    """A process that has `Metrics.endpoint` open, here or on another machine: its GPUs and its pipeline.

    Args:
        url: `http://host:port`; `/metrics` is added where it has no path.
        devices: To show, as that process numbers them; None: all.

    Raises:
        UsageError: No such URL.
        MissingError: prometheus-client, which reads the answer, is not installed.
    """

    def __init__(self, url: str, devices: Iterable[int] | None = None) -> None:
        wrong = UsageError(f"{url!r} is not the address of an endpoint", allowed="such as http://127.0.0.1:9400")
        try:
            parts = urlsplit(url)
        except ValueError as error:  # brackets without a partner
            raise wrong from error
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise wrong
        require("prometheus_client", "monitor", "reading a Prometheus endpoint")
        self.url = url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/metrics"
        self._devices = None if devices is None else set(devices)

    def read(self) -> State:
        """What it tells now.

        Raises:
            MissingError: Nobody answers.
            UsageError: It answers something else.
        """
        state = parse(self._text(), time.time())
        if self._devices is None:
            return state
        return State(state.time, tuple(gpu for gpu in state.gpus if gpu.index in self._devices), state.progress)

    def _text(self) -> str:
        try:
            with urllib.request.urlopen(self.url, timeout=_TIMEOUT_S) as answer:  # http or https: see above
                return str(answer.read(_MOST_BYTES).decode(errors="replace"))
        except urllib.error.HTTPError as error:
            with error:
                raise UsageError(f"{self.url} answers {error.code}", allowed="an endpoint of this package") from error
        except http.client.HTTPException as error:
            told = f"{self.url} does not answer in HTTP, or stops midway"
            raise UsageError(told, allowed="an endpoint of this package") from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise MissingError(f"nobody answers at {self.url}: {reason}") from error


def parse(text: str, now: float) -> State:
    """The state in a Prometheus endpoint's text.

    Raises:
        UsageError: It is none of ours.
    """
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append(sample)
    except ValueError as error:
        raise UsageError(f"the answer is no text of Prometheus: {error}") from error
    if "face3d_batch_size_count" not in samples:
        raise UsageError("the answer has no metrics of face3d-trt")
    try:
        return State(now, _gpus(samples), _progress(samples))
    except (KeyError, ValueError) as error:
        raise UsageError("the answer's metrics are not those of this version of face3d-trt") from error


def _gpus(samples: dict[str, list[Sample]]) -> tuple[GpuState, ...]:
    found = []
    for about in samples.get("face3d_gpu_info", ()):
        number = about.labels["gpu"]
        figures = {name: each.value for name in samples for each in samples[name] if each.labels.get("gpu") == number}
        reasons = {
            each.labels["reason"]
            for each in samples.get("face3d_gpu_throttled", ())
            if each.labels["gpu"] == number and each.value
        }
        used, total = figures.get("face3d_gpu_memory_used_bytes"), figures.get("face3d_gpu_memory_total_bytes")
        reading = Reading(
            utilization=figures.get("face3d_gpu_utilization_ratio"),
            memory_used=None if used is None else int(used),
            memory_total=None if total is None else int(total),
            temperature_c=figures.get("face3d_gpu_temperature_celsius"),
            watts=figures.get("face3d_gpu_power_watts"),
            energy_j=figures.get("face3d_gpu_energy_joules_total"),
            sm_mhz=_mhz(figures.get("face3d_gpu_sm_clock_hertz")),
            memory_mhz=_mhz(figures.get("face3d_gpu_memory_clock_hertz")),
            throttled=tuple(word for word in THROTTLES.values() if word in reasons),
        )
        found.append(GpuState(int(number), about.labels["name"], reading))
    return tuple(found)


def _progress(samples: dict[str, list[Sample]]) -> Progress:
    def by(name: str, label: str) -> dict[str, float]:
        return {each.labels[label]: each.value for each in samples.get(name, ())}

    def total(name: str) -> int:
        return round(sum(each.value for each in samples.get(name, ())))

    calls, seconds = by("face3d_stage_seconds_count", "stage"), by("face3d_stage_seconds_sum", "stage")
    lengths, capacities = by("face3d_queue_length", "stage"), by("face3d_queue_capacity", "stage")
    stages = {
        name: Stage(
            queue=round(lengths[name]) if name in lengths else None,
            capacity=round(capacities[name]) if name in capacities else None,
            calls=round(calls[name]),
            seconds=seconds[name],
        )
        for name in calls
    }
    return Progress(
        stages=stages,
        images={outcome: round(count) for outcome, count in by("face3d_images_total", "outcome").items()},
        batches=total("face3d_batch_size_count"),
        batched=total("face3d_batch_size_sum"),
        batch_limits={int(gpu): round(limit) for gpu, limit in by("face3d_batch_limit", "gpu").items()},
    )


def _mhz(hertz: float | None) -> float | None:
    return None if hertz is None else hertz / 1e6
