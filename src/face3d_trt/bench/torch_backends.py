"""The backends `torch-*`: `model/fast.py` as `bench` drives it.

| | on a GPU | on the CPU |
|---|---|---|
| torch-fp32, torch-tf32 | eager, as most people run it | fp32 |
| torch-amp | `torch.autocast` to float16 around float32 weights, eager, as articles have it | the same |
| torch-amp:compile | autocast at its best: channels_last, compiled | |
| torch-bf16, torch-half | convolutions of that type, channels_last, eager | the same |
| torch-graph | half, channels_last, cuDNN's algorithms timed, one CUDA graph for each shape | |
| torch-compile | the same, compiled with reduce-overhead, which makes CUDA graphs too | float32, compiled |
| torch-compile:max-autotune | the same, with Triton's templates tried: minutes for each shape | |

"engine": inputs lie on the device, float ones in the network's type and memory order, uint8 ones as they are. Copying
them to where a CUDA graph reads is part of a call, as it is in service; copying results to where the next call does not
overwrite them is not, as TensorRT's are not copied either.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.inputs import random_inputs
from face3d_trt.errors import UsageError
from face3d_trt.names import COEFFS
from face3d_trt.optional import require

if TYPE_CHECKING:
    from face3d_trt.bench.backend import Case, Ready, Source
    from face3d_trt.bench.records import Arithmetic
    from face3d_trt.model.fast import FastModel
    from face3d_trt.model.fast_options import FastOptions
    from face3d_trt.model.load import FaceModel
    from face3d_trt.runtime.interface import HostArray

_CALLS = 3  # torch.compile compiles in the first, captures in the second


@dataclass(frozen=True)
class Kind:
    """One of the backends.

    Attributes:
        options: FastOptions, as keywords: what they mean needs torch.
        arithmetic: What it computes in.
        note: For the label, what the options do not say.
    """

    options: dict[str, Any]
    arithmetic: Arithmetic
    note: str = ""


_PLAIN = {"channels_last": False, "search": False}  # neither is the default of torch
KINDS = {
    "torch-fp32": Kind({"mode": "fp32", **_PLAIN}, "fp32", "TF32 off"),
    "torch-tf32": Kind({"mode": "tf32", **_PLAIN}, "tf32"),
    "torch-amp": Kind({"mode": "amp", **_PLAIN}, "amp"),
    "torch-amp:compile": Kind({"mode": "amp", "compile": "reduce-overhead"}, "amp"),
    "torch-bf16": Kind({"mode": "bf16", "search": False}, "bf16"),
    "torch-half": Kind({"mode": "half", "search": False}, "fp16"),
    "torch-graph": Kind({"mode": "half", "graph": True}, "fp16"),
    "torch-compile": Kind({"mode": "half", "compile": "reduce-overhead"}, "fp16"),
    "torch-compile:max-autotune": Kind({"mode": "half", "compile": "max-autotune"}, "fp16"),
}
_ON_CPU = {
    "torch-fp32": Kind({"mode": "fp32", **_PLAIN}, "fp32", "CPU"),
    "torch-amp": Kind({"mode": "amp", **_PLAIN}, "amp", "CPU"),
    "torch-bf16": Kind({"mode": "bf16"}, "bf16", "CPU"),
    "torch-half": Kind({"mode": "half"}, "fp16", "CPU"),
    "torch-compile": Kind({"mode": "fp32", "compile": "default"}, "fp32", "CPU"),
}


def make(name: str, source: Source) -> TorchBackend:
    """A backend of PyTorch.

    Args:
        name: One of KINDS.
        source: `model`, the checkpoint directory; `device`.

    Raises:
        MissingError: torch is not installed.
        UsageError: The directory is not named, or the CPU has no such backend.
    """
    require("torch", "export", f"the backend {name}")
    kinds = KINDS if source.device is not None else _ON_CPU
    if name not in kinds:
        raise UsageError(f"{name} needs a GPU", allowed=", ".join(kinds))
    if source.model is None:
        raise UsageError(f"{name} needs the model's directory", allowed="--model DIRECTORY")
    return TorchBackend(name, kinds[name], source)


class TorchBackend:
    """See Backend.

    Args:
        name: As --backend has it.
        kind: What that means.
        source: The model's directory, and where it runs.
    """

    def __init__(self, name: str, kind: Kind, source: Source) -> None:
        from face3d_trt.model.fast_options import FastOptions

        self.name, self.arithmetic = name, kind.arithmetic
        self.plan: str | None = None
        self._source = source
        self._options = FastOptions(**kind.options)
        self.label = ", ".join(part for part in (self._options.label, kind.note) if part)
        self._model: FaceModel | None = None

    def start(self) -> None:
        """See Backend."""
        if self._source.device is not None:
            import torch

            torch.cuda.set_device(self._source.device)
            torch.cuda.synchronize()
        elif (reason := why_not_on_cpu(self._options)) is not None:
            raise UsageError(f"{self.name}: {reason}")

    def ready(self, case: Case) -> Ready:
        """See Backend."""
        from face3d_trt.model.fast import FastModel

        self._load()
        assert self._model is not None
        options = replace(self._options, outputs=case.outputs)
        index = self._source.device
        model = FastModel(self._model, options, device="cpu" if index is None else f"cuda:{index}")
        return OnHost(model, case) if case.mode == "host" else OnDevice(model, case)

    def close(self) -> None:
        """See Backend."""
        self._model = None

    def _load(self) -> None:
        if self._model is None:
            from face3d_trt.model.load import load_model

            assert self._source.model is not None
            self._model = load_model(self._source.model, morphable=None)


class Timed(ABC):
    """A model at one case; what both modes have in common.

    Args:
        model: Of this case alone.
    """

    def __init__(self, model: FastModel) -> None:
        self._model = model
        self._device = model.device
        self._on_gpu = model.device.type == "cuda"

    @abstractmethod
    def call(self) -> None:
        """See Ready."""

    def finish(self) -> None:
        """See Ready."""
        import torch

        if self._on_gpu:
            torch.cuda.synchronize(self._device)

    def allocator_peak(self) -> int | None:
        """See Ready: what the allocator held of the GPU at most once the case was set up, CUDA graphs included.

        Neither what cuDNN tried out nor what the compiler did counts: that memory was given back before.
        """
        import torch

        return torch.cuda.max_memory_reserved(self._device) if self._on_gpu else None

    def close(self) -> None:
        """See Ready."""
        import torch

        compiled = self._model.options.compile is not None
        vars(self).pop("_model")
        vars(self).pop("_turns", None)
        if compiled:
            torch.compiler.reset()  # drops its CUDA graphs' memory too
        gc.collect()
        if self._on_gpu:
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()

    def _set_up(self) -> None:
        """Compile, capture, choose algorithms; then give back what that took."""
        import torch

        for _ in range(_CALLS):
            self.call()
        self.finish()
        if self._on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)


class OnDevice(Timed):
    """A Ready of mode "engine".

    Args:
        model: Of this case alone.
        case: What is run.
    """

    def __init__(self, model: FastModel, case: Case) -> None:
        import torch

        super().__init__(model)
        tensors = (torch.from_numpy(images).to(self._device) for images in random_inputs(case))
        self._turns = itertools.cycle([each if case.input == "uint8" else model.prepare(each) for each in tensors])
        self._set_up()

    def call(self) -> None:
        """See Ready."""
        self._model(next(self._turns), copy=False)

    def window_ms(self, loops: int) -> float:
        """See Ready; by CUDA events on a GPU."""
        import torch

        if not self._on_gpu:
            begun = time.perf_counter()
            self._call_often(loops)
            return (time.perf_counter() - begun) * 1000 / loops
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        self._call_often(loops)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / loops

    def coeffs(self, images: HostArray) -> HostArray:
        """See Ready."""
        import torch

        found: HostArray = self._model(torch.from_numpy(images).to(self._device))[COEFFS].cpu().numpy()
        return found

    def _call_often(self, loops: int) -> None:
        for _ in range(loops):
            self.call()


class OnHost(Timed):
    """A Ready of mode "host". Windows run overlapped, by FastModel.map.

    Args:
        model: Of this case alone.
        case: What is run.
    """

    def __init__(self, model: FastModel, case: Case) -> None:
        super().__init__(model)
        self._turns = itertools.cycle(random_inputs(case))
        self._set_up()

    def call(self) -> None:
        """See Ready."""
        self._model(next(self._turns))

    def window_ms(self, loops: int) -> float:
        """See Ready."""
        begun = time.perf_counter()
        deque(self._model.map(itertools.islice(self._turns, loops)), maxlen=0)
        return (time.perf_counter() - begun) * 1000 / loops

    def coeffs(self, images: HostArray) -> HostArray:
        """See Ready."""
        return self._model(images)[COEFFS]


def why_not_on_cpu(options: FastOptions) -> str | None:
    """Why this CPU cannot, or should not, run a model with these options."""
    import torch

    native = {"bf16": "_is_mkldnn_bf16_supported", "half": "_is_mkldnn_fp16_supported"}
    asked = native.get("half" if options.mode == "amp" else options.mode)
    if asked is not None and not (torch._C._has_mkldnn and getattr(torch.ops.mkldnn, asked)()):
        return f"this CPU has no instructions for {options.mode}, and emulating them takes many times as long"
    if options.compile and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++"))):
        return "torch.compile needs a C++ compiler, and there is none"
    return None
