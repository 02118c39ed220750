"""From a plan's path to a plan in TensorRT's hands on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.engine.loaded import LoadedPlan
    from face3d_trt.records import Manifest, ModelInfo
    from face3d_trt.runtime.cuda import Device


@dataclass(frozen=True)
class Loaded:
    """A plan and its GPU.

    Attributes:
        gpu: Its context is retained.
        plan: Deserialised there.
        nbytes: Size of the plan's file.
        manifest: Of the plan; None: unknown.
        model: What it computes.
        backend: In words.
    """

    gpu: Device
    plan: LoadedPlan
    nbytes: int
    manifest: Manifest | None
    model: ModelInfo
    backend: str


def load(path: Path, device: int) -> Loaded:
    """Check a plan and its manifest, then load it.

    Raises:
        PlanError: It is damaged, swapped, without its manifest, or built for something else.
        MissingError: No pycuda, no TensorRT, no such GPU.
    """
    from face3d_trt.engine.flavour import find_flavour
    from face3d_trt.engine.gpu import visible_gpus
    from face3d_trt.runtime.cuda import Device
    from face3d_trt.runtime.plans import check_runs, open_plan

    manifest, data = open_plan(path)
    gpu = Device(device)
    try:
        flavour = find_flavour()
        check_runs(manifest, flavour, visible_gpus()[device], where=str(path))
        with gpu.current():
            plan = flavour.load(data, str(path), host_code=manifest.version_compat)
    except BaseException:
        gpu.close()
        raise
    title = "TensorRT" if flavour.name == "tensorrt" else "TensorRT-RTX"
    backend = f"{title} {flavour.version} on {gpu.name} ({gpu.compute_capability})"
    return Loaded(gpu, plan, len(data), manifest, manifest.model, backend)
