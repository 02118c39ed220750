"""In which precision a graph computes: one rule for ONNX graphs and for parsed TensorRT networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto

_NO_ARITHMETIC = {"Constant", "Cast", "Identity", "QuantizeLinear", "DequantizeLinear"}
_WEIGHTED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}


@dataclass(frozen=True)
class Operation:
    """One node or layer that computes.

    Args:
        name: Of the node or layer.
        precision: "int8", "fp16" or "fp32".
        convolution: Whether it is a convolution.
    """

    name: str
    precision: str
    convolution: bool


@dataclass(frozen=True)
class Tally:
    """How many operations compute in each precision.

    Args:
        operations: All of them: {"int8": 77, "fp16": 52}.
        convolutions: The convolutions among them: {"int8": 60}.
    """

    operations: dict[str, int] = field(default_factory=dict)
    convolutions: dict[str, int] = field(default_factory=dict)

    def share(self, precision: str) -> str:
        """Say it in words: "60 of 60 convolutions in int8"."""
        counts, noun = (self.convolutions, "convolutions") if self.convolutions else (self.operations, "layers")
        return f"{counts.get(precision, 0)} of {sum(counts.values())} {noun} in {precision}"

    def found(self, precision: str) -> int:
        """Convolutions in `precision`; in a graph without convolutions, operations."""
        return (self.convolutions or self.operations).get(precision, 0)


def precision_of(output: str, dequantized: Sequence[bool], *, weighted: bool) -> str:
    """Precision in which an operation computes.

    Args:
        output: Its floating-point output type, "fp16" or "fp32".
        dequantized: For each input, whether it comes out of a DequantizeLinear.
        weighted: Convolution or matrix product: it computes in int8 only when activation and weights both are
            dequantized. Anything else does so when one of its inputs is (a residual add keeps the branch that is fused
            into its convolution in floating point).
    """
    if weighted:
        return "int8" if len(dequantized) > 1 and all(dequantized[:2]) else output
    return "int8" if any(dequantized) else output


def tally(operations: Iterable[Operation]) -> Tally:
    """Count `operations`."""
    listed = list(operations)
    return Tally(
        dict(Counter(operation.precision for operation in listed)),
        dict(Counter(operation.precision for operation in listed if operation.convolution)),
    )


def operations(model: ModelProto) -> list[Operation]:
    """The nodes of an ONNX graph that compute on floating-point numbers."""
    from onnx import TensorProto, shape_inference

    floats = {TensorProto.FLOAT16: "fp16", TensorProto.FLOAT: "fp32"}
    graph = shape_inference.infer_shapes(model).graph
    types = {info.name: info.type.tensor_type.elem_type for info in (*graph.value_info, *graph.output)}
    dequantized = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    listed = []
    for node in graph.node:
        output = floats.get(types.get(node.output[0], 0))
        if output is None or node.op_type in _NO_ARITHMETIC:
            continue
        inputs = [name in dequantized for name in node.input]
        precision = precision_of(output, inputs, weighted=node.op_type in _WEIGHTED)
        listed.append(Operation(node.name, precision, node.op_type == "Conv"))
    return listed
