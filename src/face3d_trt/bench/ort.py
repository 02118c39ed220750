"""The backends `ort-*`: ONNX Runtime on the CPU, or on a GPU where onnxruntime-gpu is.

| | on the CPU | on a GPU |
|---|---|---|
| ort-fp32 | the float32 graph, optimized | the same |
| ort-fp16 | `build`'s typed graph as it stands; float16 is emulated | the same, with float16 kernels |
| ort-int8 | ONNX Runtime's own static quantization, optimized | `build`'s typed graph as it stands |

`build`'s int8 graphs are laid out for TensorRT. ONNX Runtime's optimizer has no fused kernel for that layout, and
spoils the one with float16 around its Q/DQ pairs (runtime/onnxfile.py). What its users do on a CPU is quantize with its
own tool, whose layout it turns into QLinearConv; that is what is timed there.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from face3d_trt.bench.backend import Skip
from face3d_trt.bench.inputs import random_inputs
from face3d_trt.bench.registry import BACKENDS
from face3d_trt.bench.subject import read_facts
from face3d_trt.errors import UsageError
from face3d_trt.names import COEFFS, INPUT
from face3d_trt.optional import require
from face3d_trt.runtime.onnxfile import is_typed

if TYPE_CHECKING:
    from face3d_trt.bench.backend import Case, Ready, Source
    from face3d_trt.bench.records import Arithmetic
    from face3d_trt.runtime.interface import HostArray

_CUDA = "CUDAExecutionProvider"
_QUIET = 3  # ONNX Runtime's log level above warnings
_OWN = "quantized.onnx"  # what ONNX Runtime's own tool makes, in the run's folder


def make(name: str, source: Source) -> OrtBackend:
    """A backend of ONNX Runtime.

    Args:
        name: ort-fp32, ort-fp16 or ort-int8.
        source: `onnx`, the float32 graph; `plan`, the typed one, where that is run.

    Raises:
        MissingError: No ONNX Runtime, or none for this device.
        UsageError: The graph is not named.
    """
    ort = require("onnxruntime", "cpu" if source.device is None else "gpu", f"the backend {name}")
    own = name == "ort-int8" and source.device is None
    path = source.onnx if name == "ort-fp32" or own else source.plan
    if path is None:
        raise UsageError(f"{name} needs a graph", allowed="--onnx FILE, with its typed graph beside it")
    return OrtBackend(name, path, source, ort, own=own)


class OrtBackend:
    """See Backend.

    Args:
        name: As --backend has it.
        path: The graph.
        source: Where it runs, and what calibrates it.
        ort: The module onnxruntime.
        own: Whether ONNX Runtime quantizes the graph itself.
    """

    def __init__(self, name: str, path: Path, source: Source, ort: Any, *, own: bool) -> None:
        self.name, self._path, self._source, self._ort, self._own = name, path, source, ort, own
        self.arithmetic: Arithmetic = BACKENDS[name].arithmetic
        self.plan: str | None = path.name
        self._facts = read_facts(path)
        self._typed = is_typed(path.read_bytes())
        self.label = self._title()

    def start(self) -> None:
        """See Backend. ONNX Runtime makes its context with its first session; quantization happens here."""
        if self._own:
            from face3d_trt.bench.quantize import quantize

            assert self._source.folder is not None  # the run makes one
            self._path = quantize(self._path, self._source.folder / _OWN, self._source.calib)

    def ready(self, case: Case) -> Ready:
        """See Backend."""
        if case.input != self._facts.input or case.outputs != self._facts.outputs:
            raise Skip(f"the graph takes {self._facts.input} and gives {self._facts.outputs}")
        session = self._session()
        if self._source.device is not None and case.mode == "engine":
            return Bound(session, self._ort, case, self._source.device)
        return OnHost(session, case)

    def close(self) -> None:
        """See Backend."""

    def _session(self) -> Any:
        ort, index = self._ort, self._source.device
        providers: list[Any] = ["CPUExecutionProvider"]
        if index is not None:
            providers = [(_CUDA, {"device_id": index}), *providers]
        options = ort.SessionOptions()
        options.log_severity_level = _QUIET
        levels = ort.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_DISABLE_ALL if self._typed else levels.ORT_ENABLE_ALL
        session = ort.InferenceSession(str(self._path), options, providers=providers)
        if index is not None and session.get_providers()[0] != _CUDA:  # it falls back on the CPU by itself
            raise Skip("CUDA did not start in ONNX Runtime")
        return session

    def _title(self) -> str:
        place = "CPU" if self._source.device is None else "CUDA"
        how = {"ort-fp32": "float32, optimized", "ort-fp16": "fp16 graph as built"}.get(
            self.name, "int8 graph as built"
        )
        if self.name == "ort-fp16" and self._source.device is None:
            how += " (float16 is emulated)"
        if self._own:
            how = "int8 by its own static quantization, optimized"
            if self._source.calib is None:
                how += ", calibrated on the package's samples, as the error is"
        return f"ONNX Runtime {self._ort.__version__}, {place}, {how}"


class OnHost:
    """A session with numpy arrays; a Ready of either mode on the CPU, of "host" on a GPU.

    Args:
        session: ONNX Runtime's.
        case: What is run.
    """

    def __init__(self, session: Any, case: Case) -> None:
        self._session = session
        self._feeds = itertools.cycle([{INPUT: images} for images in random_inputs(case)])
        self.call()

    def call(self) -> None:
        """See Ready."""
        self._session.run(None, next(self._feeds))

    def finish(self) -> None:
        """See Ready; nothing is left to wait for."""

    def window_ms(self, loops: int) -> float:
        """See Ready; by the host's clock."""
        begun = time.perf_counter()
        for _ in range(loops):
            self.call()
        return (time.perf_counter() - begun) * 1000 / loops

    def allocator_peak(self) -> int | None:
        """See Ready."""
        return None

    def coeffs(self, images: HostArray) -> HostArray:
        """See Ready."""
        found: HostArray = self._session.run([COEFFS], {INPUT: images})[0]
        return found

    def close(self) -> None:
        """See Ready."""
        self._session = None


class Bound(OnHost):
    """Inputs and outputs on the GPU, by ONNX Runtime's IO binding; a run is waited for.

    Args:
        session: With CUDA as its first provider.
        ort: The module onnxruntime.
        case: What is run.
        device: Index of the GPU.
    """

    def __init__(self, session: Any, ort: Any, case: Case, device: int) -> None:
        self._ort, self._device = ort, device
        names = [output.name for output in session.get_outputs()]
        self._values = [ort.OrtValue.ortvalue_from_numpy(images, "cuda", device) for images in random_inputs(case)]
        self._bindings = itertools.cycle([self._binding(session, value, names) for value in self._values])
        super().__init__(session, case)

    def call(self) -> None:
        """See Ready."""
        self._session.run_with_iobinding(next(self._bindings))

    def _binding(self, session: Any, value: Any, outputs: list[str]) -> Any:
        binding = session.io_binding()
        binding.bind_ortvalue_input(INPUT, value)
        for name in outputs:
            binding.bind_output(name, "cuda", self._device)
        return binding
