"""3D face reconstruction as TensorRT engines.

Importing this package costs nothing: torch, onnx, modelopt and tensorrt are imported by the functions that need them.

    from face3d_trt import export_onnx, build_engine, compare    # on the machine that builds
    from face3d_trt import open_engine, Engine                   # on the machine that serves
    from face3d_trt import FastModel, FastOptions                # the fast PyTorch path, where TensorRT cannot be had
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Newer wheels of ONNX Runtime report their use to their makers, on Linux too, unless told not to beforehand.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from face3d_trt.engine.build import BuildOptions as BuildOptions
    from face3d_trt.engine.build import build_engine as build_engine
    from face3d_trt.graph.export import ExportOptions as ExportOptions
    from face3d_trt.graph.export import export_onnx as export_onnx
    from face3d_trt.model.fast import FastModel as FastModel
    from face3d_trt.model.fast_options import FastOptions as FastOptions
    from face3d_trt.parity.compare import CompareOptions as CompareOptions
    from face3d_trt.parity.compare import compare as compare
    from face3d_trt.runtime.engine import Engine as Engine
    from face3d_trt.runtime.interface import FaceEngine as FaceEngine
    from face3d_trt.runtime.open import open_engine as open_engine
    from face3d_trt.runtime.ort import OrtEngine as OrtEngine

_HOMES = {
    "BuildOptions": "face3d_trt.engine.build",
    "build_engine": "face3d_trt.engine.build",
    "CompareOptions": "face3d_trt.parity.compare",
    "compare": "face3d_trt.parity.compare",
    "Engine": "face3d_trt.runtime.engine",
    "ExportOptions": "face3d_trt.graph.export",
    "export_onnx": "face3d_trt.graph.export",
    "FaceEngine": "face3d_trt.runtime.interface",
    "FastModel": "face3d_trt.model.fast",
    "FastOptions": "face3d_trt.model.fast_options",
    "open_engine": "face3d_trt.runtime.open",
    "OrtEngine": "face3d_trt.runtime.ort",
}
__all__ = [
    "BuildOptions",
    "CompareOptions",
    "Engine",
    "ExportOptions",
    "FaceEngine",
    "FastModel",
    "FastOptions",
    "OrtEngine",
    "__version__",
    "build_engine",
    "compare",
    "export_onnx",
    "open_engine",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
