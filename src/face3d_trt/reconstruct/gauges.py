"""What the GPUs of a run do meanwhile, what they are held to, and what the run tells Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from face3d_trt.monitor.limits import Governor, Limits
from face3d_trt.monitor.metrics import Metrics
from face3d_trt.monitor.nvml import Sampler
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.monitor.tally import Summary

_EVERY_S = 0.25


class Gauges:
    """Watches the GPUs while the `with` block runs. On the CPU there is nothing to watch, and it counts all the same.

    Args:
        devices: Of the run.
        limits: That the GPUs are held to, by smaller batches.
        port: Where Prometheus is answered; None: nowhere. 0: one that is free.
        report: Told what cannot be asked, what is exceeded, and where Prometheus is answered.

    Attributes:
        metrics: Counts of the run.
    """

    def __init__(
        self, devices: Sequence[int], limits: Limits | None = None, port: int | None = None, report: Reporter = SILENT
    ) -> None:
        gpus = tuple(sorted({device for device in devices if device != CPU}))
        self.metrics = Metrics(gpus, report=report)
        self._port, self._report = port, report
        self._samplers = {device: Sampler(device, _EVERY_S, report=report) for device in gpus}
        self._governors = {
            device: Governor(limits or Limits(), sampler.latest, device=device, report=report)
            for device, sampler in self._samplers.items()
        }
        for device, governor in self._governors.items():
            self.metrics.batch_limit(device, lambda governor=governor: governor.allowed)  # type: ignore[misc]
        self._stack = ExitStack()

    def __enter__(self) -> Gauges:
        with ExitStack() as stack:
            stack.callback(self.metrics.close)
            for sampler in self._samplers.values():
                stack.enter_context(sampler)
            if self._port is not None:
                url = stack.enter_context(self.metrics.endpoint(self._port))
                self._report.stage(f"metrics    {url}")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def allowed(self, size: int) -> int:
        """The largest batch that all GPUs' limits allow now: one size for all, so that results do not differ."""
        return min((governor.batch(size) for governor in self._governors.values()), default=size)

    def readings(self) -> dict[int, dict[str, Any]]:
        """What each GPU does now, as JSON values."""
        return {device: asdict(sampler.latest()) for device, sampler in self._samplers.items()}

    def summaries(self) -> dict[int, Summary]:
        """What each GPU did since the beginning."""
        return {device: sampler.summary() for device, sampler in self._samplers.items()}
