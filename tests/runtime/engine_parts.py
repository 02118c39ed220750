"""An Engine on doubles of CUDA and TensorRT, or on the real ones, by the same call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from face3d_trt.runtime.engine import Engine
from face3d_trt.runtime.fitting import Budget
from tests.runtime.fakes import FakeDevice, FakeGraphs, FakePlan
from tests.runtime.network import MODEL, build_plan


@dataclass
class Parts:
    """What engines are made of, and what was made.

    Args:
        real: CUDA and TensorRT; otherwise the doubles.
    """

    real: bool
    engines: list[Engine] = field(default_factory=list)
    plan: bytes = b""

    def open(
        self,
        *,
        contexts: int = 1,
        graphs: bool = True,
        memory_limit: int | None = None,
        check: bool = True,
        gpu: Any = None,
        plan: Any = None,
        maker: Any = None,
    ) -> Engine:
        """As Engine(...), but with the plan of network.py; `gpu`, `plan` and `maker` stand in for what it would make."""
        gpu = gpu or self.device()
        plan = plan or self.load(gpu)
        if graphs and maker is None:
            maker = self.maker(gpu)
        engine = Engine.__new__(Engine)
        budget = Budget(memory_limit, len(self.plan))
        engine._start(
            gpu, plan, maker, manifest=None, model=MODEL, backend="test", contexts=contexts, budget=budget, check=check
        )
        self.engines.append(engine)
        return engine

    def device(self, index: int = 0) -> Any:
        if not self.real:
            return FakeDevice(index)
        from face3d_trt.runtime.cuda import Device

        return Device(index)

    def load(self, gpu: Any) -> Any:
        if not self.real:
            return FakePlan(gpu)
        from face3d_trt.engine.flavour import find_flavour

        self.plan = self.plan or build_plan()
        with gpu.current():
            return find_flavour().load(self.plan, "the test's plan")

    def maker(self, gpu: Any) -> Any:
        if not self.real:
            return FakeGraphs(gpu)
        from face3d_trt.runtime.graphs import find_graphs

        return find_graphs()

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
        self.engines.clear()
