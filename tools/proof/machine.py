"""What a step ran on, and what each interpreter has."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Settings

PACKAGES = (
    "numpy",
    "torch",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "nvidia-modelopt",
    "pycuda",
    "cuda-python",
    "cuda-bindings",
    "polygraphy",
    "tensorrt",
)


def versions() -> dict[str, str]:
    """Of Python and of the packages that are installed here, by their metadata: nothing is imported."""
    installed = {each.name.lower(): each.version for each in importlib.metadata.distributions() if each.name}
    return {"python": platform.python_version(), **{name: installed[name] for name in PACKAGES if name in installed}}


def gpu(index: int = 0) -> dict[str, str] | None:
    """Name, compute capability and driver of a GPU; None where there is none."""
    from face3d_trt.engine.gpu import visible_gpus

    gpus = visible_gpus()
    return gpus[index].model_dump() if index < len(gpus) else None


def engine_side(settings: Settings) -> dict[str, Any]:
    """Which TensorRT, and what it wants to be given: `{"flavour", "version", "strongly_typed", "gpus", ...}`."""
    from face3d_trt.engine.flavour import find_flavour
    from face3d_trt.engine.gpu import visible_gpus

    flavour = find_flavour()
    return {
        "flavour": flavour.name,
        "version": flavour.version,
        "strongly_typed": flavour.strongly_typed,
        "has_timing_cache": flavour.has_timing_cache,
        "gpus": [each.model_dump() for each in visible_gpus()],
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
    }


def torch_side(settings: Settings) -> dict[str, Any]:
    """Which torch, and the CUDA that it was built for."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} sees no GPU here")
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
