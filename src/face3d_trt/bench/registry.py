"""Which backends there are, and who makes them. Nothing is imported before one is made."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from face3d_trt.bench.backend import Backend, Source
    from face3d_trt.bench.records import Arithmetic


@dataclass(frozen=True)
class Entry:
    """A backend before it is made.

    Attributes:
        module: Has `make(name: str, source: Source) -> Backend`; a missing package is a MissingError from there.
        arithmetic: For rows of a backend that could not be made.
        cpu: Whether it is taken unasked where there is no GPU.
        gpu: Whether it is taken unasked where there is one.
        needs: What of `Source` it reads: "model", "onnx" or "plan".
        compiles: Whether getting ready for a case is held to `Source.compile_limit_s`.
    """

    module: str
    arithmetic: Arithmetic
    cpu: bool
    needs: str
    compiles: bool = False
    gpu: bool = True


_TORCH = "face3d_trt.bench.torch_backends"
_ORT = "face3d_trt.bench.ort"
BACKENDS = {
    "torch-fp32": Entry(_TORCH, "fp32", True, "model"),
    "torch-tf32": Entry(_TORCH, "tf32", False, "model"),
    "torch-amp": Entry(_TORCH, "amp", False, "model"),
    "torch-amp:compile": Entry(_TORCH, "amp", False, "model", compiles=True),
    "torch-bf16": Entry(_TORCH, "bf16", False, "model"),
    "torch-half": Entry(_TORCH, "fp16", False, "model"),
    "torch-compile": Entry(_TORCH, "fp16", False, "model", compiles=True),
    "torch-compile:max-autotune": Entry(_TORCH, "fp16", False, "model", compiles=True, gpu=False),
    "torch-graph": Entry(_TORCH, "fp16", False, "model"),
    "ort-fp32": Entry(_ORT, "fp32", True, "onnx"),
    "ort-fp16": Entry(_ORT, "fp16", False, "onnx"),
    "ort-int8": Entry(_ORT, "int8", True, "onnx"),
    "trt": Entry("face3d_trt.bench.trt", "fp16", False, "plan"),
}


def make(name: str, source: Source, module: str | None = None) -> Backend:
    """A backend by its name.

    Args:
        name: A key of BACKENDS.
        source: What it is made from.
        module: Another one that makes it.

    Raises:
        MissingError: A package that it needs is not installed.
    """
    found = importlib.import_module(module or BACKENDS[name].module)
    return cast("Backend", found.make(name, source))
