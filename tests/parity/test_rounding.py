"""ONNX Runtime has to compute the float16 that a typed graph speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.parity.graphs import tiny_onnx, weights

from face3d_trt.errors import GraphError
from face3d_trt.parity.rounding import round_explicitly
from face3d_trt.parity.runners import typed_runner

if TYPE_CHECKING:
    from pathlib import Path


def chain() -> onnx.ModelProto:
    """Float32 in and out; in between float16 x·1.1 + 0.3, squared."""
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Cast", ["input"], ["h"], to=TensorProto.FLOAT16),
            node("Mul", ["h", "factor"], ["scaled"]),
            node("Add", ["scaled", "shift"], ["moved"]),
            node("Mul", ["moved", "moved"], ["square"]),
            node("Cast", ["square"], ["coeffs"], to=TensorProto.FLOAT),
        ],
        "chain",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("coeffs", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.array(v, np.float16), k) for k, v in (("factor", 1.1), ("shift", 0.3))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run(model: onnx.ModelProto, value: np.ndarray, path: Path) -> np.ndarray:
    onnx.save(model, path)
    with typed_runner(path) as runner:
        return np.array(runner.infer({"input": value})["coeffs"])


def test_every_float16_result_is_rounded(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 3, 1000).astype(np.float32)
    half = x.astype(np.float16)
    expected = np.square(half * np.float16(1.1) + np.float16(0.3)).astype(np.float32)
    assert (run(chain(), x, tmp_path / "chain.onnx") == expected).all()


def test_what_overflows_in_float16_is_infinite(tmp_path: Path) -> None:
    # squares to 90 000, above float16's 65 504; the next node would bring it back, were it kept in float32
    model = chain()
    model.graph.node[-1].input[0] = "small"
    model.graph.node.insert(4, helper.make_node("Mul", ["square", "tiny"], ["small"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1e-3, np.float16), "tiny"))
    found = run(model, np.array([1.0, 273.0], np.float32), tmp_path / "overflow.onnx")
    assert np.isfinite(found[0])
    assert np.isinf(found[1])


def test_the_graph_means_the_same_and_keeps_its_interface() -> None:
    model = tiny_onnx(weights(), half=True)
    before = model.SerializeToString()
    rounded = round_explicitly(model)
    onnx.checker.check_model(rounded, full_check=True)
    assert model.SerializeToString() == before
    assert [v.name for v in rounded.graph.input] == ["input"]
    assert [v.name for v in rounded.graph.output] == ["coeffs"]


def test_a_float32_graph_stays_as_it_is() -> None:
    model = tiny_onnx(weights())
    assert round_explicitly(model).SerializeToString() == model.SerializeToString()


def test_a_graph_of_unknown_types_is_refused() -> None:
    model = chain()
    model.opset_import.append(helper.make_opsetid("unknown.domain", 1))
    model.graph.node[1].domain = "unknown.domain"
    with pytest.raises(GraphError, match="type is unknown"):
        round_explicitly(model)
