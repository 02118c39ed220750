"""The engine that this machine can run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.errors import MissingError, UsageError
from face3d_trt.runtime.engine import Engine
from face3d_trt.runtime.options import check_engine, check_number
from face3d_trt.runtime.ort import OrtEngine, has_cuda

if TYPE_CHECKING:
    from face3d_trt.runtime.interface import FaceEngine

_OPTIONS = ("check", "contexts", "graphs", "memory_limit")  # of Engine; the twin has the first
_log = logging.getLogger("face3d_trt")


def open_engine(
    path: str | Path, *, device: int = 0, on: Literal["auto", "gpu", "cpu"] = "auto", **options: Any
) -> FaceEngine:
    """Open a plan or an ONNX file with the engine that this machine has for it.

        engine = open_engine("engines/face3d_resnet50.fp16.plan")           # GPU where there is one
        engine = open_engine("engines/face3d_resnet50.fp16.plan", on="gpu")  # or an error
        engine.backend                                                      # which it became

    A plan is run by TensorRT where there is a GPU. Where there is none, its typed ONNX runs on ONNX Runtime with the
    plan's limits, and the logger `face3d_trt` is warned. A GPU that cannot run the plan is an error, never a reason to
    go to the CPU. An ONNX file is run by ONNX Runtime, on the GPU if onnxruntime-gpu is there.

    Args:
        path: Of `build` (.plan) or of `export` (.onnx).
        device: Index of the GPU.
        on: "gpu" falls back on nothing; "cpu" uses no GPU.
        options: Of Engine: `contexts`, `graphs`, `memory_limit`, `check`. ONNX Runtime has only `check`.

    Raises:
        UsageError: An unknown option; or a bad plan (PlanError) or graph (GraphError).
        MissingError: What would run it is not installed, or on="gpu" where there is no GPU.
    """
    _check(device, on, options)
    path = Path(path)
    check = options.get("check", True)
    if path.suffix == ".onnx":
        on_gpu = on == "gpu" or (on == "auto" and bool(visible_gpus()) and has_cuda())
        return OrtEngine(path, device if on_gpu else "cpu", check=check)
    if on == "gpu" and not visible_gpus():
        raise MissingError(
            f"{path} does not run on a GPU here: this machine has none that CUDA sees",
            allowed="on='auto' or on='cpu', which run its typed ONNX on the CPU",
            run="nvidia-smi    # and CUDA_VISIBLE_DEVICES may hide it",
        )
    if on == "gpu" or (on == "auto" and visible_gpus()):
        return Engine(path, device, **options)
    twin = OrtEngine(path, "cpu", check=check)
    if on == "auto":
        _log.warning("%s: no GPU here, so %s stands in for TensorRT", path, twin.backend)
    return twin


def _check(device: object, on: str, options: dict[str, Any]) -> None:
    """What would be wrong on a GPU is wrong without one too, or a service's tests would not find it."""
    check_number("open_engine: device", device, "the index of a GPU, from 0 on; on='cpu' takes no GPU", least=0)
    if on not in ("auto", "gpu", "cpu"):
        raise UsageError(f"open_engine(on={on!r})", allowed="auto, gpu, cpu")
    if unknown := [name for name in options if name not in _OPTIONS]:
        raise UsageError(f"open_engine has no option {unknown[0]}", allowed=", ".join(("device", "on", *_OPTIONS)))
    check_engine(**{name: value for name, value in options.items() if name in ("contexts", "memory_limit")})
