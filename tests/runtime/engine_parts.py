"""An Engine on doubles of CUDA and TensorRT, or on the real ones, by the same call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.runtime.fakes import FakeDevice, FakeGraphs, FakePlan
from tests.runtime.network import MODEL, build_plan

from face3d_trt.runtime.devicearray import DeviceArray
from face3d_trt.runtime.engine import Engine
from face3d_trt.runtime.loading import Loaded


@dataclass
class Producer:
    """The owner of pictures on the GPU; see devicearray.Owner."""

    gpu: Any
    stream: int

    @property
    def device(self) -> int:
        return self.gpu.index

    def order(self, stream: int) -> None:
        with self.gpu.current():
            self.gpu.order(self.stream, stream)


@dataclass
class OnlyCudaArrayInterface:
    __cuda_array_interface__: dict[str, Any]


@dataclass
class Parts:
    """What engines are made of, and what was made.

    Args:
        real: CUDA and TensorRT; otherwise the doubles.
        file: The plan of network.py for the real ones, so that it is built once; empty: build it.
    """

    real: bool
    file: str = ""
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
        """As Engine(...), with the plan of network.py; `gpu`, `plan` and `maker` stand in for what it would make."""
        gpu = gpu or self.device()
        plan = plan or self.load(gpu)
        if graphs and maker is None:
            maker = self.maker(gpu)
        engine = Engine.__new__(Engine)
        loaded = Loaded(gpu, plan, len(self.plan), None, MODEL, "test")
        engine._start(loaded, maker, contexts, memory_limit, check)
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

        self.plan = self.plan or (Path(self.file).read_bytes() if self.file else build_plan())
        with gpu.current():
            return find_flavour().load(self.plan, "the test's plan")

    def maker(self, gpu: Any) -> Any:
        if not self.real:
            return FakeGraphs(gpu)
        from face3d_trt.runtime.graphs import find_graphs

        return find_graphs()

    @contextmanager
    def on_gpu(self, engine: Engine, images: np.ndarray, interface: str, skip: int = 0) -> Iterator[Any]:
        """The pictures from row `skip` on, on the GPU, brought there by a stream that may not have come that far."""
        gpu = engine._gpu
        with gpu.current():
            memory, stream, pinned = gpu.alloc(images.nbytes), gpu.stream(), gpu.pinned(images.nbytes)
            pinned.array[:] = images.reshape(-1).view(np.uint8)
            gpu.copy_in(memory.address, pinned.array, stream)
        address, rest = memory.address + images[:skip].nbytes, images[skip:]
        array = DeviceArray(address, rest.shape, rest.dtype, Producer(gpu, stream.handle))
        yield array if interface == "dlpack" else OnlyCudaArrayInterface(array.__cuda_array_interface__)
        with gpu.current():
            stream.synchronize()
            for each in (memory, stream, pinned):
                each.free()

    def used_memory(self, engine: Engine) -> int:
        with engine._gpu.current():
            free, total = engine._gpu.memory()
        return total - free

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
        self.engines.clear()
