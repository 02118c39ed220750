"""Polygraphy runners: float32 PyTorch, ONNX Runtime on a graph as it is written, and the engine."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from polygraphy.backend.base import BaseRunner
from polygraphy.backend.onnxrt import OnnxrtRunner
from polygraphy.common import TensorMetadata
from polygraphy.logger import G_LOGGER

from face3d_trt.errors import Face3DError, GraphError
from face3d_trt.names import INPUT

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto
    from torch import nn

    from face3d_trt.records import Precision

Feed = Mapping[str, npt.NDArray[Any]]
TYPED = "onnxruntime-typed"
TORCH_PIXELS = 32 * 224 * 224  # rows × height × width that PyTorch sees at once: under 1 GB of activations


@dataclass(frozen=True)
class Candidate:
    """Something that is measured against the reference.

    Attributes:
        name: `onnxruntime-fp32`, `onnxruntime-typed` or `tensorrt`.
        title: The same for people.
        precision: Whose limits it must keep.
        runner: From the index of an optimization profile to the Polygraphy runner; ONNX Runtime has the same for all.
        on_host: Whether it takes the machine's memory, and not a GPU's.
    """

    name: str
    title: str
    precision: Precision
    runner: Callable[[int], BaseRunner]
    on_host: bool = True


class CandidateError(Face3DError):
    """A candidate could not run a batch at all."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        super().__init__(problem)


class TorchRunner(BaseRunner):  # type: ignore[misc]  # polygraphy has no types
    """The float32 reference, on the CPU.

    Polygraphy's own PytRunner is for CUDA and cannot read the types of its own metadata. Rows are independent in a
    network in eval mode, so a large batch is run in pieces of TORCH_PIXELS.

    Args:
        module: Takes the graph's input, gives a tuple of tensors.
        outputs: Their names.
        layout: Of the input: float32 (batch, 3, height, width) or uint8 (batch, height, width, 3).
    """

    def __init__(self, module: nn.Module, outputs: Sequence[str], layout: Literal["float32", "uint8"]) -> None:
        super().__init__(name="pytorch")
        self._module = module
        self._outputs = tuple(outputs)
        self._layout = layout

    def activate_impl(self) -> None:
        """Batch norm and dropout as in inference."""
        self._module.eval()

    def get_input_metadata_impl(self) -> TensorMetadata:
        """The one input."""
        shape = (None, 3, None, None) if self._layout == "float32" else (None, None, None, 3)
        return TensorMetadata().add(INPUT, dtype=np.dtype(self._layout), shape=shape)

    def infer_impl(self, feed_dict: Feed) -> OrderedDict[str, npt.NDArray[Any]]:
        """Run a batch, in pieces."""
        import torch

        start = time.perf_counter()
        rows = torch.from_numpy(np.ascontiguousarray(feed_dict[INPUT]))
        at_once = max(1, TORCH_PIXELS * 3 // rows[0].numel())
        with torch.inference_mode():
            pieces = [self._module(piece) for piece in torch.split(rows, at_once)]
            results = [torch.cat(output).numpy() for output in zip(*pieces, strict=True)]
        self.inference_time = time.perf_counter() - start
        return OrderedDict(zip(self._outputs, results, strict=True))


class GraphRunner(OnnxrtRunner):  # type: ignore[misc]  # polygraphy has no types
    """ONNX Runtime; what it cannot run becomes a CandidateError that names the candidate."""

    def get_input_metadata_impl(self) -> TensorMetadata:
        """The inputs with every dimension open: a graph with one baked in is refused by ONNX Runtime, by name."""
        metadata = TensorMetadata()
        for name, (dtype, shape) in super().get_input_metadata_impl().items():
            metadata.add(name, dtype=dtype, shape=(None,) * len(shape))
        return metadata

    def infer_impl(self, feed_dict: Feed) -> OrderedDict[str, npt.NDArray[Any]]:
        """Run a batch."""
        try:
            results: OrderedDict[str, npt.NDArray[Any]] = super().infer_impl(feed_dict)
        except Exception as error:  # ONNX Runtime's errors have no common base but Exception
            raise CandidateError(self.name, str(error).strip().splitlines()[-1]) from error
        return results


def float32_runner(onnx_path: Path) -> GraphRunner:
    """The exported graph, with ONNX Runtime's own optimizations: they keep float32."""
    from face3d_trt.graph.info import read_graph

    model = read_graph(onnx_path).SerializeToString()
    return GraphRunner(_session(model, onnx_path, "ORT_ENABLE_ALL"), name="onnxruntime-fp32")


def typed_runner(onnx_path: Path) -> GraphRunner:
    """The typed graph as it is written.

    Float16 is rounded explicitly (rounding.py says why) and optimizations are off. Measured on a quarter-width ResNet50
    (ONNX Runtime 1.32, two cores, batch 8), in shares of the variation between pictures: without explicit rounding
    results move by 2 % (fp16) and 32 % (int8); with it all levels up to EXTENDED give the same bits, and ENABLE_ALL
    moves fp16 by 2 %. It takes 0.25 s a batch instead of 0.18 s (fp16), and no longer for int8.
    """
    from face3d_trt.graph.info import read_graph

    return graph_runner(read_graph(onnx_path), onnx_path)


def graph_runner(typed: ModelProto, path: Path) -> GraphRunner:
    """`typed_runner` for a graph that is not in a file; messages call it `path`."""
    from face3d_trt.parity.rounding import round_explicitly

    model = round_explicitly(typed).SerializeToString()
    return GraphRunner(_session(model, path, "ORT_DISABLE_ALL"), name=TYPED)


def _session(model: bytes, path: Path, optimization: str) -> Any:
    import onnxruntime
    from polygraphy.backend.onnxrt import SessionFromOnnx

    level = getattr(onnxruntime.GraphOptimizationLevel, optimization)
    try:
        with quiet():
            session = SessionFromOnnx(model, providers=["cpu"], graph_optimization_level=level)()
    except Exception as error:  # ONNX Runtime's errors have no common base but Exception
        raise GraphError(f"ONNX Runtime cannot load {path}: {error}", run="face3d-trt build") from error
    inputs = [value.name for value in session.get_inputs()]
    if inputs != [INPUT]:
        raise GraphError(f"{path} has the inputs {inputs}", allowed=INPUT, run="face3d-trt export")
    return session


@contextmanager
def quiet() -> Iterator[None]:
    """Polygraphy logs to stdout, where the verdict goes: silence it."""
    with G_LOGGER.verbosity(G_LOGGER.CRITICAL + 1):
        yield
