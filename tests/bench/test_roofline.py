"""Bounds on networks whose work is known."""

from __future__ import annotations

import pytest
from tests.bench.runs import CEILINGS, layers, row, work

from face3d_trt.bench.layer_bounds import by_place, by_stage, layer_bounds, shown_name, slowest_rest
from face3d_trt.bench.records import Ceilings, NodeWork
from face3d_trt.bench.roofline import bound_of, bound_of_row, share_of_bound
from face3d_trt.bench.work import total

CONV = NodeWork(name="c", flops=2e9, weight_elements=1_000_000, activation_elements=10_000_000)


def test_one_convolution_by_hand() -> None:
    bound = bound_of(total([CONV]), CEILINGS, "fp16", 4)
    assert bound.arithmetic == pytest.approx(4 * 2e9 / 700e12 * 1e3)
    assert bound.memory == pytest.approx((1e6 + 4 * 10e6) * 2 / 4e12 * 1e3)
    assert (bound.ms, bound.limit) == (bound.memory, "memory")


@pytest.mark.parametrize(
    ("arithmetic", "rate", "weight", "activation"),
    [
        ("fp32", 50e12, 4, 4),
        ("tf32", 400e12, 4, 4),
        ("amp", 700e12, 4, 2),
        ("bf16", 700e12, 2, 2),
        ("int8", 1400e12, 1, 1),
    ],
)
def test_every_precision_has_its_rate_and_its_bytes(arithmetic, rate, weight, activation) -> None:  # type: ignore[no-untyped-def]
    bound = bound_of(total([CONV]), CEILINGS, arithmetic, 1)
    assert bound.arithmetic == pytest.approx(2e9 / rate * 1e3)
    assert bound.memory == pytest.approx((1e6 * weight + 10e6 * activation) / 4e12 * 1e3)


def test_host_to_host_counts_the_slower_way_of_the_copies() -> None:
    pixels = 3 * 224 * 224
    for input, nbytes in (("uint8", pixels), ("float32", 4 * pixels)):
        bound = bound_of_row(row("trt-int8", 8, mode="host", input=input), total([CONV]), CEILINGS)
        assert bound.copies == pytest.approx(8 * nbytes / 50e9 * 1e3)
    assert bound_of_row(row("trt-int8", 8), total([CONV]), CEILINGS).copies is None


def test_what_was_not_measured_bounds_nothing() -> None:
    bound = bound_of(total([CONV]), Ceilings(), "fp16", 1)
    assert (bound.ms, bound.limit) == (None, None)
    assert share_of_bound(row("trt-fp16"), bound) is None


def test_the_share_of_a_known_row() -> None:
    """The full network in int8, batch 256: 8.18 GFLOP each at 1,400 TOP/s are 1.49 ms, 26.7 MB each at 4 TB/s 1.71."""
    bound = bound_of_row(row("trt-int8", 256, 3.6), work(), CEILINGS)
    assert bound.arithmetic == pytest.approx(1.495, abs=0.005)
    assert bound.memory == pytest.approx(1.715, abs=0.005)
    assert share_of_bound(row("trt-int8", 256, 3.6), bound) == pytest.approx(1.715 / 3.6, abs=0.002)


def test_layers_find_the_work_of_their_nodes() -> None:
    found = {shown_name(each.name): each for each in layer_bounds(layers(256), work(), CEILINGS)}
    last = found["layer1.0.conv3/Conv + layer1.0/Add + layer1.0.relu/Relu_3"]
    # 56 × 56 pixels: 64 channels in, 256 out, and the residual's 256; 1 byte each
    assert last.bound_ms == pytest.approx((256 * 56 * 56 * (64 + 256 + 256) + 64 * 256) / 4e12 * 1e3)
    assert last.limit == "memory"
    assert found["input_QuantizeLinear"].bound_ms == 0.0
    (copy,) = (each for name, each in found.items() if name.startswith("Reformatting"))
    assert copy.bound_ms == 0.0  # though the nodes that it serves stand in its name
    heads = found["final_layers.0/Conv + final_layers.1/Conv"]
    assert heads.bound_ms == pytest.approx((256 * (2 * 2048 + 80 + 64) + 2048 * (80 + 64)) / 4e12 * 1e3)


def test_groups_add_up_and_the_rest_is_ordered() -> None:
    every = layer_bounds(layers(256), work(), CEILINGS)
    for groups in (by_stage(every), by_place(every)):
        assert sum(each.ms for each in groups) == pytest.approx(sum(each.ms for each in every))
        assert sum(each.rest_ms for each in groups) == pytest.approx(sum(each.rest_ms for each in every))
    assert {each.name for each in by_stage(every)} == {
        "first convolution",
        "stage 1",
        "heads",
        "reformats and the rest",
    }
    assert {each.name for each in by_place(every)} >= {"3x3", "last 1x1"}
    rests = [each.rest_ms for each in slowest_rest(every, 3)]
    assert rests == sorted(rests, reverse=True)
    assert len(rests) == 3
