"""The backend `trt`: a plan, alone on the GPU ("engine") or through `Engine` with numpy arrays ("host")."""

from __future__ import annotations

import itertools
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.backend import Skip
from face3d_trt.bench.inputs import random_inputs
from face3d_trt.bench.records import LayerProfile, LayerTime
from face3d_trt.bench.resident import Resident, profile_for
from face3d_trt.errors import UsageError
from face3d_trt.names import COEFFS
from face3d_trt.records import Manifest, manifest_path
from face3d_trt.runtime.graphs import find_graphs
from face3d_trt.runtime.lane import SMALL_ROWS
from face3d_trt.runtime.loading import Loaded, load

if TYPE_CHECKING:
    from concurrent.futures import Future

    from face3d_trt.bench.backend import Case, Ready, Source
    from face3d_trt.bench.records import Arithmetic
    from face3d_trt.runtime.cuda import Device
    from face3d_trt.runtime.engine import Engine
    from face3d_trt.runtime.interface import HostArray

_IN_FLIGHT = 6  # submitted batches: more than an engine's ring has slots


def make(name: str, source: Source) -> TrtBackend:
    """The backend of a plan.

    Raises:
        UsageError: No plan is named, or no GPU.
        PlanError: Its manifest is missing or damaged.
    """
    if source.plan is None or source.device is None:
        raise UsageError(f"{name} needs a plan and a GPU", allowed="--plan FILE on a machine with an NVIDIA GPU")
    return TrtBackend(name, source.plan, source.device)


class TrtBackend:
    """See Backend.

    Args:
        name: As --backend has it.
        plan: With its manifest beside it.
        device: Index of the GPU.
    """

    def __init__(self, name: str, plan: Path, device: int) -> None:
        self.name, self._path, self._device = name, plan, device
        self._manifest = manifest = Manifest.read(manifest_path(plan))
        self._gpu: Device | None = None
        self._graphs = find_graphs()
        self.plan: str | None = plan.name
        self.arithmetic: Arithmetic = manifest.precision
        title = "TensorRT" if manifest.flavour == "tensorrt" else "TensorRT-RTX"
        how = f", CUDA graphs up to batch {SMALL_ROWS}" if self._graphs else ""
        self.label = f"{title} {manifest.flavour_version}, {manifest.precision}{how}"

    def start(self) -> None:
        """See Backend; one small allocation makes CUDA put everything in place."""
        from face3d_trt.runtime.cuda import Device

        self._gpu = Device(self._device)
        with self._gpu.current():
            self._gpu.alloc(1).free()

    def ready(self, case: Case) -> Ready:
        """See Backend. The plan is loaded for each case, so that its memory is that of this case alone."""
        facts = self._manifest.model
        if case.input != facts.input or case.outputs != facts.outputs:
            raise Skip(f"the plan takes {facts.input} and gives {facts.outputs}")
        profile_for(self._manifest.profiles, case)
        if case.mode == "host":
            return ThroughEngine(self._path, self._device, case)
        return OwnResident(load(self._path, self._device), case, self._graphs)

    def profile(self, case: Case) -> LayerProfile:
        """Time the plan's layers at a case."""
        from face3d_trt.engine.layers import layer_records, with_times

        ready = OwnResident(load(self._path, self._device), case, None)
        try:
            inspection, times = ready.layer_times()
        finally:
            ready.close()
        layers = with_times(layer_records(inspection, profile_for(self._manifest.profiles, case)), times)
        return LayerProfile(
            plan=self._path.name,
            precision=self._manifest.precision,
            batch=case.batch,
            layers=tuple(LayerTime(name=each.name, ms=each.time_ms or 0.0, kind=each.kind) for each in layers),
        )

    def close(self) -> None:
        """See Backend."""
        if self._gpu is not None:
            self._gpu.close()
            self._gpu = None


class OwnResident(Resident):
    """A Resident that closes its plan and GPU with itself."""

    def __init__(self, loaded: Loaded, case: Case, graphs: Any) -> None:
        self._loaded = loaded
        try:
            super().__init__(loaded.gpu, loaded.plan, case, graphs)
        except BaseException:
            self._unload()
            raise

    def close(self) -> None:
        """See Ready."""
        super().close()
        self._unload()

    def _unload(self) -> None:
        with self._loaded.gpu.current():
            self._loaded.plan.close()
        self._loaded.gpu.close()


class ThroughEngine:
    """`Engine` as services use it; a Ready of mode "host". Single calls are serial, windows overlap by `submit`.

    Args:
        plan: With its manifest beside it.
        device: Index of the GPU.
        case: What is run.
        engine: An open engine in the place of the plan's.
    """

    def __init__(self, plan: Path, device: int, case: Case, engine: Engine | None = None) -> None:
        if engine is None:
            from face3d_trt.runtime.engine import Engine

            engine = Engine(plan, device, check=False)
        self._engine = engine
        try:
            engine.warm_up((case.batch,))
            self._turns = itertools.cycle(random_inputs(case))
            self.call()
        except BaseException:
            engine.close()
            raise

    def call(self) -> None:
        """See Ready."""
        self._engine(next(self._turns))

    def finish(self) -> None:
        """See Ready; nothing is left to wait for."""

    def window_ms(self, loops: int) -> float:
        """See Ready; from the first submission to the last result."""
        pending: deque[Future[dict[str, HostArray]]] = deque()
        submit, turns = self._engine.submit, self._turns
        begun = time.perf_counter()
        for _ in range(loops):
            if len(pending) == _IN_FLIGHT:
                pending.popleft().result()
            pending.append(submit(next(turns)))
        while pending:
            pending.popleft().result()
        return (time.perf_counter() - begun) * 1000 / loops

    def allocator_peak(self) -> int | None:
        """See Ready."""
        return None

    def coeffs(self, images: HostArray) -> HostArray:
        """See Ready."""
        found: HostArray = self._engine(images)[COEFFS]
        return found

    def close(self) -> None:
        """See Ready."""
        self._engine.close()
