"""What counts as int8."""

from __future__ import annotations

import pytest
from tests.tiny import CONVOLUTIONS, tiny_graph

from face3d_trt.graph.counts import Operation, operations, precision_of, tally


@pytest.mark.parametrize(
    ("dequantized", "weighted", "precision"),
    [
        ([True, True, False], True, "int8"),
        ([True, False], True, "fp16"),  # weights in floating point: TensorRT runs it so
        ([False, True], True, "fp16"),
        ([True], True, "fp16"),  # 10 and RTX give a convolution with fixed weights one input
        ([False, True], False, "int8"),  # a residual add whose other branch is fused into its convolution
        ([False, False], False, "fp16"),
        ([], False, "fp16"),
    ],
)
def test_a_weighted_operation_needs_both_sides_quantized(
    dequantized: list[bool], weighted: bool, precision: str
) -> None:
    assert precision_of("fp16", dequantized, weighted=weighted) == precision


def test_every_node_that_computes_is_counted_once() -> None:
    found = tally(operations(tiny_graph("mesh", "uint8")))
    # 6 Conv, 5 Relu, 2 Add, MaxPool, ReduceMean, Reshape; Transpose, Div; 2 Slice, 2 MatMul, 2 Reshape
    assert found.operations == {"fp32": 24}
    assert found.convolutions == {"fp32": CONVOLUTIONS}


def test_the_share_is_told_in_convolutions() -> None:
    found = tally([Operation("a", "int8", True), Operation("b", "fp16", True), Operation("c", "fp16", False)])
    assert found.share("int8") == "1 of 2 convolutions in int8"
    assert tally([Operation("c", "fp16", False)]).share("fp16") == "1 of 1 layers in fp16"
