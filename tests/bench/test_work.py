"""Counted work against counts by hand and published ones."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from face3d_trt.bench.results import _countable
from face3d_trt.bench.subject import Subject
from face3d_trt.bench.work import count_file, count_graph, count_network
from face3d_trt.graph.info import read_info
from face3d_trt.graph.macs import multiply_adds

RESNET50_GMACS = 4.09  # torchvision's ResNet-50 v1.5 at 224 × 224; He et al. 2015, of v1: 3.8
RESNET50_BACKBONE = (
    23_454_912  # weights of its 53 convolutions: 25,557,032 less batch norms (53,120) and fc (2,049,000)
)


def graph(nodes: list[onnx.NodeProto], **weights: tuple[int, ...]) -> onnx.ModelProto:
    """One input (batch, 3, height, width), one output."""
    stored = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in weights.items()]
    image = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    output = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    made = helper.make_graph(nodes, "g", [image], [output], stored)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])


def test_one_convolution_by_hand() -> None:
    conv = helper.make_node("Conv", ["input", "w"], ["y"], name="c", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    work = count_graph(graph([conv], w=(8, 3, 3, 3)), 10, 12)
    assert work.flops == 2 * (3 * 3 * 3) * 8 * (5 * 6)
    assert work.weight_elements == 3 * 3 * 3 * 8
    assert work.activation_elements == 3 * 10 * 12 + 8 * 5 * 6


def test_pooling_and_relu_behind_a_convolution_move_nothing_more() -> None:
    conv = helper.make_node("Conv", ["input", "w"], ["y"], name="c", kernel_shape=[1, 1])
    relu = helper.make_node("Relu", ["y"], ["z"])
    pool = helper.make_node("MaxPool", ["z"], ["p"], kernel_shape=[2, 2], strides=[2, 2])
    work = count_graph(graph([conv, relu, pool], w=(4, 3, 1, 1)), 8, 8)
    assert work.activation_elements == 3 * 64 + 4 * 16


def test_a_residual_add_reads_its_other_input() -> None:
    conv = helper.make_node("Conv", ["input", "w"], ["y"], name="c", kernel_shape=[1, 1])
    add = helper.make_node("Add", ["y", "input"], ["z"], name="a")
    work = count_graph(graph([conv, add], w=(3, 3, 1, 1)), 8, 8)
    assert work.activation_elements == 3 * (3 * 64)
    assert [node.name for node in work.nodes] == ["c", "a"]


@pytest.mark.parametrize("transposed", [0, 1])
def test_matrix_products_by_hand(transposed: int) -> None:
    pool = helper.make_node("GlobalAveragePool", ["input"], ["m"])
    flat = helper.make_node("Flatten", ["m"], ["f"])
    gemm = helper.make_node("Gemm", ["f", "w"], ["y"], name="g", transB=transposed)
    work = count_graph(graph([pool, flat, gemm], w=(7, 3) if transposed else (3, 7)), 8, 8)
    assert (work.flops, work.weight_elements, work.activation_elements) == (2 * 3 * 7, 21, 3 + 7)


def test_the_full_network_is_a_resnet50() -> None:
    work = count_network(64)
    heads = 2048 * 257
    assert work.flops / 2e9 == pytest.approx(RESNET50_GMACS, abs=0.005)
    assert work.weight_elements == RESNET50_BACKBONE + heads
    assert next(node.activation_elements for node in work.nodes if node.name.endswith("/Add")) == 256 * 56 * 56
    assert sum(node.name.endswith("/Add") for node in work.nodes) == 16
    assert sum(node.name.endswith("/Conv") for node in work.nodes) == 53 + 7


def test_more_pixels_are_more_work_in_proportion() -> None:
    small, large = count_network(64, 224, 224), count_network(64, 448, 448)
    assert large.flops / small.flops == pytest.approx(4, rel=1e-3)  # all but the heads
    assert large.weight_elements == small.weight_elements


def test_graph_and_definition_agree_node_by_node(exported: Path) -> None:
    by_graph, by_definition = count_file(exported), count_network(16)
    assert {node.name: node for node in by_graph.nodes} == {node.name: node for node in by_definition.nodes}
    assert by_graph.flops == 2 * sum(multiply_adds(onnx.load(exported)).values())
    assert math.isclose(sum(node.flops for node in by_graph.nodes), by_graph.flops)


def test_without_a_graph_the_checkpoint_tells_which_network_it_is(standin: Path, exported: Path) -> None:
    subject = Subject(standin, None, (), None, None, "stand-in")
    source = _countable(subject, "coeffs")
    assert source is not None
    count, directory = source
    assert count(directory, 224, 224) == count_network(read_info(exported).width)
    assert _countable(subject, "mesh") is None  # whose bases it does not count
    assert _countable(Subject(None, None, (), None, None, "an engine alone"), "coeffs") is None


def test_a_mesh_has_the_bases_beside_the_network(exported_mesh: Path) -> None:
    mesh, network = count_file(exported_mesh), count_network(16)
    names = {node.name for node in network.nodes}
    decode = [node for node in mesh.nodes if node.name.split("network/")[-1] not in names]
    vertices = 3 * read_info(exported_mesh).vertices
    bases = vertices * (80 + 64 + 80)  # identity, expression, texture
    assert sum(node.weight_elements for node in decode) == pytest.approx(bases, rel=0.01)
    assert sum(node.flops for node in decode) == pytest.approx(2 * bases, rel=0.01)
