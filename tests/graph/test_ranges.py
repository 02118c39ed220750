"""Ranges by what the output loses, and what multiply-adds are worth."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from tests.tiny import crops, run, tiny_graph

from face3d_trt.faces.tensor import to_input
from face3d_trt.graph.activations import Probe
from face3d_trt.graph.macs import int8_share, multiply_adds
from face3d_trt.graph.parts import split
from face3d_trt.graph.ranges import Range, after, find_ranges, output_loss
from face3d_trt.graph.spare import spare_convolutions, spare_readers

RELU = "backbone.layer1.0.relu/Relu:0"
STREAM = "backbone.layer1.0.relu/Relu_2:0"
POOL = ("backbone.relu/Relu:0", "backbone.maxpool/MaxPool:0")


def _pictures(number: int) -> np.ndarray:
    return to_input(crops(number), "float32")


def test_the_rest_of_the_network_computes_what_the_whole_does() -> None:
    network, pictures = split(tiny_graph()).network, _pictures(3)
    rest, needed = after(network, RELU)
    assert needed == ("backbone.maxpool/MaxPool:0",)  # the branch that the residual add takes
    values = Probe(network, [RELU, *needed, "coeffs"]).run({"input": pictures})
    widest = np.abs(values[RELU]).max()
    fine = {name: values[name] for name in (RELU, *needed)} | {"range/scale": np.array(widest / 127, np.float32)}
    rounded = Probe(rest, ["coeffs"]).run(fine)["coeffs"]
    error = np.abs(rounded - values["coeffs"]).max() / np.abs(values["coeffs"]).max()
    assert 0 < error < 0.01


def test_the_rounding_is_that_of_quantize_linear() -> None:
    network, pictures = split(tiny_graph()).network, _pictures(2)
    rest, needed = after(network, RELU)
    values = Probe(network, [RELU, *needed]).run({"input": pictures})
    scale = np.array(values[RELU].max() / 200, np.float32)  # clips, too
    ours = Probe(rest, ["range/rounded"]).run({**values, "range/scale": scale})["range/rounded"]
    codes = np.clip(np.rint(values[RELU] / scale), -128, 127)
    np.testing.assert_array_equal(ours, codes * scale)


def test_a_searched_range_loses_no_more_than_the_largest_value_does() -> None:
    network, pictures = split(tiny_graph(loud=20.0)).network, _pictures(6)
    found = find_ranges(network, "input", [RELU, STREAM], pictures)
    for tensor, chosen in found.items():
        rest, needed = after(network, tensor)
        values = Probe(network, [tensor, *needed, "coeffs"]).run({"input": pictures})
        given = {name: values[name] for name in (tensor, *needed)}
        losses = []
        for widest in (np.abs(values[tensor]).max(), chosen.widest):
            rounded = Probe(rest, ["coeffs"]).run({**given, "range/scale": np.array(widest / 127, np.float32)})
            losses.append(output_loss(rounded["coeffs"], values["coeffs"]))
        assert losses[1] <= losses[0]
        assert losses[1] == pytest.approx(chosen.loss, rel=1e-3)


def test_a_pooled_tensor_has_one_range_before_and_after() -> None:
    found = find_ranges(split(tiny_graph()).network, "input", POOL, _pictures(3))
    assert found[POOL[0]].widest == found[POOL[1]].widest


def test_one_strange_picture_in_ten_does_not_decide() -> None:
    exact = np.random.default_rng(0).normal(size=(10, 5)).astype(np.float32)
    changed = exact + 0.01
    strange = changed.copy()
    strange[3] += 1000
    assert output_loss(strange, exact) == pytest.approx(output_loss(changed, exact), rel=0.3)
    assert output_loss(changed + 1, exact) > 1000 * output_loss(changed, exact)


@pytest.mark.parametrize("pictures", [np.zeros((1, 4)), np.ones((3, 4)), np.eye(4)])
def test_the_loss_is_finite_where_outputs_do_not_vary(pictures: np.ndarray) -> None:
    assert np.isfinite(output_loss(pictures + 0.1, pictures))
    assert output_loss(pictures, pictures) == 0


def test_multiply_adds_are_kernel_times_positions() -> None:
    found = multiply_adds(split(tiny_graph()).network, 224, 224)
    assert found["backbone.conv1/Conv"] == 16 * 3 * 7 * 7 * 56 * 56
    assert found["backbone.layer1.0.conv1/Conv"] == 16 * 16 * 3 * 3 * 28 * 28
    assert found["final_layers.0/Conv"] == 257 * 16


def test_a_float32_graph_has_no_share_in_int8() -> None:
    network = split(tiny_graph()).network
    assert int8_share(network, network) == 0
    assert run(network, crops(1))[0].shape == (1, 257)


def test_the_cheapest_loss_is_spared_first_and_within_the_allowance() -> None:
    network = split(tiny_graph()).network
    nodes = [helper.make_node("Conv", [f"t{i}", "w"], [f"o{i}"], name=f"conv{i}") for i in range(3)]
    del network.graph.node[:]
    network.graph.node.extend(nodes)
    ranges = {"t0": Range(1.0, 0.01), "t1": Range(1.0, 0.01), "t2": Range(1.0, 0.0001)}
    costs = {"conv0": 900, "conv1": 10, "conv2": 90}
    assert set(spare_convolutions(network, ranges, costs, 0.05)) == {"conv1"}
    assert set(spare_convolutions(network, ranges, costs, 0.0)) == set()
    assert set(spare_convolutions(network, ranges, costs, 0.95)) == {"conv0", "conv1"}


def test_an_average_that_loses_much_for_little_reading_is_spared_and_a_lossless_one_is_not() -> None:
    """Of the tiny network's last activation, one pixel in a thousand is wide: the range is coarse for all others."""
    network, pictures = split(tiny_graph()).network, _pictures(4)
    last = "backbone.layer1.1.relu/Relu_2:0"
    widest = float(np.abs(Probe(network, [last]).run({"input": pictures})[last]).max())

    def spared(factor: float, **limits: float) -> set[str]:
        ranges = {last: Range(widest * factor, 1.0), STREAM: Range(1.0, 0.0)}
        return set(spare_readers(network, "input", ranges, pictures, **{"allowed": 1.0, "worth": 0.03} | limits))

    assert spared(30.0) == {"backbone.avgpool/ReduceMean"}
    assert spared(1.0) == set()  # 127 steps up to the largest value: it loses less than 3 %
    assert spared(30.0, allowed=0.1) == set()  # it reads a third: the other two are what reads STREAM


def test_an_addition_is_weighed_without_the_convolution_that_reads_the_same() -> None:
    network, pictures = split(tiny_graph()).network, _pictures(4)
    coarse = {STREAM: Range(100.0, 1.0)}
    found = spare_readers(network, "input", coarse, pictures, allowed=1.0, worth=0.0)
    assert set(found) == {"backbone.layer1.1/Add"}
    (loss, share), *_ = found.values()
    rest, needed = after(network, STREAM)
    values = Probe(network, [STREAM, *needed, "coeffs"]).run({"input": pictures})
    given = {name: values[name] for name in (STREAM, *needed)}
    both = Probe(rest, ["coeffs"]).run({**given, "range/scale": np.array(100 / 127, np.float32)})["coeffs"]
    assert loss != pytest.approx(output_loss(both, values["coeffs"]), rel=1e-3)
    assert share == 0.5  # the convolution reads the other half
