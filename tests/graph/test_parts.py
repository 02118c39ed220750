"""Cutting and joining: the joined graph computes what the whole one did."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.tiny import crops, run, tiny_graph

from face3d_trt.errors import GraphError
from face3d_trt.graph.opset import at_opset, opset_of
from face3d_trt.graph.parts import join, split

KINDS = [("coeffs", "float32"), ("coeffs", "uint8"), ("mesh", "float32"), ("mesh", "uint8")]


def _declared(model: onnx.ModelProto) -> list[tuple[str, int, list[str | int]]]:
    values = [*model.graph.input, *model.graph.output]
    kinds = [value.type.tensor_type for value in values]
    dims = [[dim.dim_param or dim.dim_value for dim in kind.shape.dim] for kind in kinds]
    return [(value.name, kind.elem_type, sizes) for value, kind, sizes in zip(values, kinds, dims, strict=True)]


@pytest.mark.parametrize(("outputs", "layout"), KINDS)
def test_the_joined_graph_computes_what_the_whole_one_did(outputs: str, layout: str) -> None:
    whole = tiny_graph(outputs, layout)
    joined = join(split(whole))
    for a, b in zip(run(whole, crops(3)), run(joined, crops(3)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert _declared(joined) == _declared(whole)
    assert [(item.key, item.value) for item in joined.metadata_props] == [
        (item.key, item.value) for item in whole.metadata_props
    ]
    assert sorted(node.name for node in joined.graph.node) == sorted(node.name for node in whole.graph.node)


def test_each_node_is_in_the_part_where_it_belongs() -> None:
    parts = split(tiny_graph("mesh", "uint8"))
    assert parts.front is not None
    assert parts.decode is not None
    assert {node.op_type for node in parts.front.graph.node} == {"Cast", "Transpose", "Div"}
    assert all(node.name.startswith("decode/") for node in parts.decode.graph.node)
    assert not any(node.name.startswith(("decode/", "front/")) for node in parts.network.graph.node)
    assert _declared(parts.network) == [
        ("image", TensorProto.FLOAT, ["batch", 3, "height", "width"]),
        ("coeffs", TensorProto.FLOAT, ["batch", 257]),
    ]


@pytest.mark.parametrize("opset", [17, 19])
@pytest.mark.parametrize(("outputs", "layout"), [("coeffs", "float32"), ("mesh", "uint8")])
def test_all_parts_follow_the_opset_of_the_network(outputs: str, layout: str, opset: int) -> None:
    whole = tiny_graph(outputs, layout)
    parts = split(whole)
    joined = join(parts.with_network(at_opset(parts.network, opset)))
    assert opset_of(joined) == opset
    for a, b in zip(run(whole, crops(2)), run(joined, crops(2)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_names_that_a_pass_gives_to_the_network_do_not_collide_with_decode() -> None:
    """Both parts hold the shared constant `one`; the pass overwrites its copy and adds a node called like decode's."""
    whole = tiny_graph("mesh")
    parts = split(whole)
    network = parts.network
    network.graph.initializer.append(numpy_helper.from_array(np.array([7], np.int64), "one"))
    network.graph.initializer.append(numpy_helper.from_array(np.array([0], np.float32), "nothing"))
    last = next(node for node in network.graph.node if "coeffs" in node.output)
    last.output[0] = "decode/MatMul_vertex:0"
    network.graph.node.append(
        helper.make_node("Add", ["decode/MatMul_vertex:0", "nothing"], ["coeffs"], name="decode/MatMul_vertex")
    )
    joined = join(parts.with_network(network))
    names = [node.name for node in joined.graph.node]
    assert len(set(names)) == len(names)
    for a, b in zip(run(whole, crops(2)), run(joined, crops(2)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def _rename(model: onnx.ModelProto, old: str, new: str) -> onnx.ModelProto:
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = new if value.name == old else value.name
    return model


@pytest.mark.parametrize(("old", "new"), [("input", "data"), ("coeffs", "logits")])
def test_a_foreign_graph_is_refused_with_what_it_has_and_what_is_wanted(old: str, new: str) -> None:
    with pytest.raises(GraphError) as caught:
        split(_rename(tiny_graph(), old, new))
    assert new in str(caught.value)
    assert f"'{old}'" in caught.value.allowed
    assert "face3d-trt export" in caught.value.run


def test_a_uint8_graph_without_the_tensor_image_is_refused() -> None:
    with pytest.raises(GraphError, match="no tensor 'image'"):
        split(_rename(tiny_graph(layout="uint8"), "image", "scaled"))


def test_a_network_that_reads_past_the_image_is_refused() -> None:
    model = tiny_graph(layout="uint8")
    first = next(node for node in model.graph.node if node.name == "backbone.conv1/Conv")
    first.input[0] = "front/Transpose:0"
    joint = next(node for node in model.graph.node if node.name == "Reshape")
    model.graph.node.insert(0, helper.make_node("Shape", ["input"], ["sizes"], name="Shape", start=0, end=1))
    model.graph.initializer.append(numpy_helper.from_array(np.array([257], np.int64), "wide"))
    model.graph.node.insert(1, helper.make_node("Concat", ["sizes", "wide"], ["shape"], name="Concat", axis=0))
    joint.input[1] = "shape"
    with pytest.raises(GraphError, match="reads 'input' past 'image'"):
        split(model)


def test_a_decode_that_reads_the_picture_is_refused() -> None:
    model = tiny_graph("mesh")
    weight = np.zeros((144, 3, 1, 1), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 144], np.int64), "rows"))
    at = next(i for i, node in enumerate(model.graph.node) if node.name == "decode/MatMul_vertex")
    model.graph.node.insert(at, helper.make_node("Conv", ["input", "w"], ["extra"], name="extra/Conv"))
    model.graph.node.insert(
        at + 1, helper.make_node("Reshape", ["extra", "rows"], ["flat_extra"], name="extra/Reshape")
    )
    model.graph.node[at + 2].input[0] = "flat_extra"
    with pytest.raises(GraphError, match="more than `coeffs`"):
        split(model)


def test_a_typed_graph_is_not_typed_again() -> None:
    model = tiny_graph()
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "final_layers.0.bias")
    half = numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), weight.name)
    weight.CopyFrom(half)
    with pytest.raises(GraphError, match="fp16 graph already"):
        split(model)


def test_an_operator_unknown_to_the_opset_is_named() -> None:
    model = tiny_graph()
    last = next(node for node in model.graph.node if "coeffs" in node.output)
    last.output[0] = "before"
    model.graph.node.append(helper.make_node("Mish", ["before"], ["coeffs"], name="late/Mish"))
    with pytest.raises(GraphError, match="opset 18 to 17"):
        at_opset(model, 17)
