"""AutoCast and ModelOpt's Q/DQ, for real, on the miniature."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from tests.tiny import CONVOLUTIONS, Recorder, crops, run, tiny_graph

from face3d_trt.errors import BuildError
from face3d_trt.faces.tensor import to_input
from face3d_trt.graph.counts import operations, tally
from face3d_trt.graph.fp16 import to_fp16
from face3d_trt.graph.int8 import METHODS, Levers, Method, quantized_tensors, set_ranges, to_int8
from face3d_trt.graph.macs import int8_share
from face3d_trt.graph.modelopt import modelopt_room
from face3d_trt.graph.opset import at_opset, opset_of
from face3d_trt.graph.parts import split


def _network(loud: float = 1.0) -> onnx.ModelProto:
    return at_opset(split(tiny_graph(loud=loud)).network, 19)


def _constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_fp16_stays_within_fp16s_rounding() -> None:
    network = _network()
    typed = to_fp16(network, "input", to_input(crops(2), "float32"))
    assert typed.kept == ()
    assert tally(operations(typed.network)).convolutions == {"fp16": CONVOLUTIONS}
    exact, half = run(network, crops(4, seed=5))[0], run(typed.network, crops(4, seed=5))[0]
    assert half.dtype == np.float32
    error = np.abs(half - exact).max() / np.abs(exact).max()
    assert 0 < error < 20 * 2**-11  # a dozen roundings to 11 bits; zero would mean that nothing was converted


def test_a_node_beyond_fp16s_accuracy_stays_in_float32_and_says_why() -> None:
    typed = to_fp16(_network(loud=2000.0), "input", to_input(crops(2), "float32"))
    kept = {node.node: node.reason for node in typed.kept}
    assert "backbone.layer1.0.conv1/Conv" in kept
    assert "out of range" in kept["backbone.layer1.0.conv1/Conv"]
    assert "final_layers.0/Conv" in kept or "backbone.conv1/Conv" not in kept  # the quiet stem is converted
    assert tally(operations(typed.network)).convolutions["fp32"] >= 1


def test_int8_scales_are_the_largest_values_divided_by_127() -> None:
    network = _network()
    report = Recorder()
    typed = to_int8(network, "input", crops(6), "max", high_precision="fp32", report=report)
    assert tally(operations(typed.network)).convolutions == {"int8": CONVOLUTIONS}
    values = _constants(typed.network)
    first = next(
        node for node in typed.network.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "input"
    )
    assert values[first.input[1]] == pytest.approx(1 / 127, rel=1e-6)  # the pictures reach 255, which is 1.0
    weight = _constants(network)["backbone.layer1.0.conv1.weight"]
    stored = next(
        value for name, value in values.items() if name.startswith("backbone.layer1.0.conv1.weight") and "scale" in name
    )
    np.testing.assert_allclose(stored, np.abs(weight).max(axis=(1, 2, 3)) / 127, rtol=1e-5)
    assert report.steps[-1] == ("calibrating", 6, 6)


def test_residual_adds_take_a_quantized_branch() -> None:
    typed = to_int8(_network(), "input", crops(4), "entropy", high_precision="fp16")
    adds = [operation for operation in operations(typed.network) if operation.name.endswith("/Add")]
    assert [add.precision for add in adds] == ["int8", "int8"]


@pytest.mark.parametrize("high_precision", ["fp16", "fp32"])
def test_ranges_reach_both_ends_of_every_pair(high_precision: Literal["fp16", "fp32"]) -> None:
    quantized = to_int8(_network(), "input", crops(2), "max", high_precision=high_precision).network
    names = quantized_tensors(quantized)
    assert {"input", "backbone.maxpool/MaxPool:0"} <= set(names)
    set_ranges(quantized, {name: 127.0 * (index + 1) for index, name in enumerate(names)})
    values = _constants(quantized)
    sources = {node.output[0]: node.name for node in quantized.graph.node if node.op_type == "QuantizeLinear"}
    for node in quantized.graph.node:
        name = (sources.get(node.input[0], "") or node.name).removesuffix("_QuantizeLinear")
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and name in names:
            assert values[node.input[1]] == names.index(name) + 1
    with pytest.raises(KeyError):
        set_ranges(quantized, {"input": 1.0})


def test_the_default_method_keeps_the_graph_and_loses_less_than_the_largest_values_do() -> None:
    network, pictures = _network(loud=20.0), crops(8)
    exact = run(network, crops(16, seed=5))[0]
    typed = {m: to_int8(network, "input", pictures, m, high_precision="fp32") for m in METHODS}
    error = {m: np.linalg.norm(run(each.network, crops(16, seed=5))[0] - exact) for m, each in typed.items()}
    assert 0 < error["output"] < error["max"]
    found = typed["output"]
    assert "ranges" in found.note
    assert {kept.node for kept in found.kept} <= {"final_layers.0/Conv"}  # a two-thousandth of the multiply-adds
    assert int8_share(network, found.network) > 0.99
    assert [value.name for value in found.network.graph.output] == ["coeffs"]
    assert found.network.graph.input[0] == network.graph.input[0]


@pytest.mark.parametrize("high_precision", ["fp16", "fp32"])
def test_a_spared_addition_reads_no_rounded_value_and_is_listed(high_precision: Literal["fp16", "fp32"]) -> None:
    """Whatever else reads the same activation, its convolution stays in int8."""
    network = _network()
    spoilt = Levers(spared_reads=1.0, worth=1e-6)
    typed = to_int8(network, "input", crops(4), "output", high_precision=high_precision, levers=spoilt)
    precisions = {each.name: each.precision for each in operations(typed.network)}
    assert precisions["backbone.layer1.1/Add"] == high_precision
    assert run(typed.network, crops(1))[0].shape == (1, 257)
    assert precisions["backbone.layer1.1.conv1/Conv"] == "int8"
    reasons = {each.node: each.reason for each in typed.kept}
    assert "of the activations" in reasons["backbone.layer1.1/Add"]
    listed = {name for name in precisions if name.endswith(("/Add", "Pool"))} & set(reasons)
    assert "additions or poolings" in typed.note
    assert all(precisions[name] != "int8" for name in listed)


@pytest.mark.parametrize("method", ["output", "entropy"])
def test_calibration_depends_on_the_pictures_and_not_on_their_order(method: Method) -> None:
    pictures = crops(9)
    results = [
        to_int8(_network(), "input", order, method, high_precision="fp16").network.SerializeToString()
        for order in (pictures, pictures[::-1].copy())
    ]
    assert results[0] == results[1]
    other = to_int8(_network(), "input", crops(9, seed=1), method, high_precision="fp16")
    assert other.network.SerializeToString() != results[0]


def test_int8_for_a_builder_with_flags_is_float32_and_fits_opset_17() -> None:
    network = at_opset(split(tiny_graph()).network, 17)
    typed = to_int8(network, "input", crops(4), "max", high_precision="fp32")
    old = at_opset(typed.network, 17)
    onnx.checker.check_model(old, full_check=True)
    assert opset_of(old) == 17
    assert not any(tensor.data_type == TensorProto.FLOAT16 for tensor in old.graph.initializer)
    np.testing.assert_allclose(run(old, crops(2))[0], run(typed.network, crops(2))[0], rtol=1e-3, atol=1e-3)


def test_modelopt_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tempfile.gettempdir()
    handlers = list(logging.getLogger().handlers)
    to_int8(_network(), "input", crops(4), "entropy", high_precision="fp16")
    to_fp16(_network(), "input", to_input(crops(1), "float32"))
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == folder
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger("modelopt.onnx").handlers == []


def test_a_failing_pass_is_a_build_error_that_says_which_and_leaves_nothing() -> None:
    folders: list[Path] = []

    def fail() -> None:
        with modelopt_room("AutoCast") as room:
            folders.append(room.folder)
            (room.folder / "half").write_bytes(b"1")
            raise ValueError("too loud")

    with pytest.raises(BuildError, match="AutoCast by ModelOpt failed: ValueError: too loud"):
        fail()
    assert not folders[0].exists()
