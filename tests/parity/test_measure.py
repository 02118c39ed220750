"""Graphs that are wrong in known ways, run side by side with PyTorch, are found, and the report says where."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.parity.graphs import SIDE, Tiny, crops, flipped, rows_constants, rows_from_one_on, tiny_onnx, weights

from face3d_trt.names import GROUPS
from face3d_trt.parity.batches import Batch
from face3d_trt.parity.gate import broken_failures, judge, reference_failures, unrun_failures
from face3d_trt.parity.limits import load_limits
from face3d_trt.parity.measure import measure
from face3d_trt.parity.memory import HostMemory
from face3d_trt.parity.runners import Candidate, TorchRunner, float32_runner, typed_runner
from face3d_trt.parity.truth import Pictures, Reference
from face3d_trt.parity.verdict import Failure, Row

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from face3d_trt.records import Precision

SIZES = tuple(Batch(0, size, SIDE, SIDE) for size in (1, 3, 8, 12))
PICTURES = Pictures(crops(10), tuple(f"face{index}.png" for index in range(10)), "float32")
Verdict = tuple[list[Row], list[Failure]]
Compare = Callable[..., Verdict]


@pytest.fixture
def against_torch(tmp_path: Path) -> Compare:
    """Compare one graph with the tiny network in PyTorch."""

    def compare(
        graph: onnx.ModelProto,
        precision: Precision = "fp32",
        ungated: frozenset[Precision] = frozenset(),
        reference: dict[str, np.ndarray] | None = None,
    ) -> Verdict:
        path = tmp_path / "graph.onnx"
        onnx.save(graph, path)
        runner = float32_runner(path) if precision == "fp32" else typed_runner(path)
        candidate = Candidate(runner.name, "the graph", precision, lambda profile: runner)
        torch_runner = TorchRunner(Tiny(reference or weights()), ["coeffs"], "float32")
        found = measure(Reference(torch_runner, PICTURES), [candidate], SIZES)
        titles = {candidate.name: candidate.title}
        rows, failures = judge(found.measured, {candidate.name: precision}, titles, load_limits(), ungated)
        return rows, [*reference_failures(found.diseased), *broken_failures(found.broken, titles), *failures]

    return compare


def test_the_same_network_passes_in_every_group_at_every_batch(against_torch: Compare) -> None:
    rows, failures = against_torch(tiny_onnx(weights()))
    assert failures == []
    assert {(row.batch, row.group) for row in rows} == {(s.size, g) for s in SIZES for g in (None, *GROUPS)}
    assert all(row.relative < 1e-5 and row.scale_kind == "variation" for row in rows)


def test_half_precision_is_measured_and_passes(against_torch: Compare) -> None:
    rows, failures = against_torch(tiny_onnx(weights(), half=True), "fp16")
    assert failures == []
    # float16 has 11 bits: what is rounded after each of ten steps differs by some 1e-4 of it, never by nothing
    assert all(1e-5 < row.relative < 0.01 for row in rows)


@pytest.mark.parametrize("key", ["conv1.weight", "conv2.weight"])
def test_the_sign_of_one_convolution_fails_every_group_by_name(against_torch: Compare, key: str) -> None:
    _, failures = against_torch(tiny_onnx(flipped(weights(), key), half=True), "fp16")
    assert {(f.output, f.group) for f in failures} == {("coeffs", group) for group in (None, *GROUPS)}
    assert {f.batch for f in failures} == {1, 3, 8, 12}
    assert any("coeffs identity: the graph at batch 8" in f.text and "allowed 1.000%" in f.text for f in failures)


def test_one_wrong_group_is_the_only_one_named(against_torch: Compare) -> None:
    changed = {key: value.copy() for key, value in weights().items()}
    changed["head.weight"][GROUPS["angle"]] *= -1
    _, failures = against_torch(tiny_onnx(changed, half=True), "fp16")
    assert "angle" in {f.group for f in failures}
    assert {f.group for f in failures} <= {"angle", None}  # three of 257 coefficients may or may not move the whole


def test_right_at_batch_one_and_wrong_at_batch_n_fails_with_row_and_picture(against_torch: Compare) -> None:
    graph = tiny_onnx(weights(), after=rows_from_one_on(0.5), extra=rows_constants(0.5))
    rows, failures = against_torch(graph)
    assert all(row.passed for row in rows if row.batch == 1)
    assert {f.batch for f in failures} == {3, 8, 12}
    for failure in failures:
        row = next(r for r in rows if (r.batch, r.group) == (failure.batch, failure.group))
        assert row.worst_row >= 1
        assert failure.image in PICTURES.names
        assert f"row {row.worst_row}, {failure.image}" in failure.text


def test_a_single_wrong_row_fails_though_the_batch_as_a_whole_would_pass(against_torch: Compare) -> None:
    node = helper.make_node
    last = (  # an error in the last row only, of a size that is lost in the mean over twelve rows
        node("Shape", ["raw"], ["rows"], start=0, end=1),
        node("Squeeze", ["rows"], ["count"]),
        node("Range", ["zero", "count", "one"], ["index"]),
        node("Equal", ["index", "eleven"], ["there"]),
        node("Cast", ["there"], ["mask"], to=onnx.TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "axis"], ["column"]),
        node("Mul", ["column", "error"], ["shift"]),
        node("Add", ["raw", "shift"], ["coeffs"]),
    )
    rows, _ = against_torch(tiny_onnx(weights()))
    scale = next(row.scale for row in rows if row.group == "identity" and row.batch == 12)
    error = 0.032 * scale / np.sqrt(80)  # 3.2 % of the variation in one row: 0.9 % over twelve
    extra = rows_constants(error) | {"eleven": np.array(11, np.int64)}
    rows, failures = against_torch(tiny_onnx(weights(), half=True, after=last, extra=extra), "fp16")
    identity = next(row for row in rows if row.group == "identity" and row.batch == 12)
    assert identity.relative < identity.allowed_relative
    found = next(f for f in failures if f.group == "identity")
    assert (found.kind, found.batch) == ("row", 12)
    assert "row 11, face" in found.text


def test_rows_in_another_order_are_caught(against_torch: Compare) -> None:
    swap = (
        helper.make_node("Slice", ["raw", "minus_one", "far", "axis0"], ["tail"]),
        helper.make_node("Slice", ["raw", "start", "minus_one", "axis0"], ["body"]),
        helper.make_node("Concat", ["tail", "body"], ["coeffs"], axis=0),
    )
    extra = {"minus_one": np.array([-1]), "far": np.array([1 << 30]), "axis0": np.array([0]), "start": np.array([0])}
    rows, failures = against_torch(tiny_onnx(weights(), after=swap, extra=extra))
    assert all(row.passed for row in rows if row.batch == 1)
    assert {f.batch for f in failures} == {3, 8, 12}


def test_blue_for_red_is_caught(against_torch: Compare) -> None:
    bgr = (helper.make_node("Gather", ["input", "order"], ["image"], axis=1),)
    _, failures = against_torch(tiny_onnx(weights(), before=bgr, extra={"order": np.array([2, 1, 0])}))
    assert {f.batch for f in failures} == {1, 3, 8, 12}
    assert {f.group for f in failures} == {None, *GROUPS}


def test_nan_is_named_by_group(against_torch: Compare) -> None:
    sick = {key: value.copy() for key, value in weights().items()}
    sick["head.bias"][GROUPS["lighting"].start] = np.nan
    rows, failures = against_torch(tiny_onnx(sick))
    assert {f.group for f in failures} == {None, "lighting"}
    assert all(f.kind == "non-finite" and "NaN" in f.text for f in failures)
    assert next(row for row in rows if row.group == "lighting" and row.batch == 8).nan == 16  # two runs of eight rows


def test_an_overflow_of_float16_inside_the_graph_is_seen(against_torch: Compare) -> None:
    # the same function in float32: activations times 20 000, heads divided by it
    large = {key: value.copy() for key, value in weights().items()}
    large["conv1.weight"] *= 2e4
    large["head.weight"] /= 2e4
    _, fine = against_torch(tiny_onnx(large))
    assert fine == []
    _, failures = against_torch(tiny_onnx(large, half=True), "fp16")
    assert {f.kind for f in failures} == {"non-finite"}


def test_a_reference_that_is_not_finite_fails_by_its_own_name(against_torch: Compare) -> None:
    sick = weights()
    sick["head.bias"][GROUPS["angle"].start] = np.inf
    _, failures = against_torch(tiny_onnx(sick), reference=sick)
    assert any("coeffs.angle: float32 PyTorch itself" in f.text for f in failures)


def test_a_batch_that_was_baked_in_is_an_error_of_that_batch_and_the_others_are_measured(
    against_torch: Compare,
) -> None:
    rows, failures = against_torch(tiny_onnx(weights(), batch=1))
    assert {row.batch for row in rows} == {1}
    assert {f.batch for f in failures} == {3, 8, 12}
    assert all(f.kind == "error" and "the graph cannot be compared at batch" in f.text for f in failures)


def test_an_output_of_another_name_is_an_error_that_lists_what_is_there(against_torch: Compare) -> None:
    _, failures = against_torch(tiny_onnx(weights(), output="embedding"))
    assert {f.kind for f in failures} == {"error"}
    assert "no output coeffs; its outputs are embedding" in failures[0].text


def test_an_ungated_precision_is_shown_but_nan_fails_all_the_same(against_torch: Compare) -> None:
    rows, failures = against_torch(tiny_onnx(flipped(weights(), "conv1.weight")), "int8", frozenset({"int8"}))
    assert failures == []
    assert all(row.passed and not row.gated and row.relative > 0.1 for row in rows)
    sick = weights()
    sick["head.bias"][0] = np.nan
    _, failures = against_torch(tiny_onnx(sick), "int8", frozenset({"int8"}))
    assert {f.group for f in failures} == {None, "identity"}


def test_a_group_in_which_pictures_do_not_differ_is_measured_against_its_size(against_torch: Compare) -> None:
    still = weights()
    still["head.weight"][GROUPS["translation"]] = 0
    rows, failures = against_torch(tiny_onnx(still), reference=still)
    assert failures == []
    assert {row.scale_kind for row in rows if row.group == "translation"} == {"magnitude"}
    moved = still | {"head.bias": still["head.bias"] * 1.1}
    _, failures = against_torch(tiny_onnx(moved), reference=still)
    assert any(f.group == "translation" and "pictures do not differ" in f.text for f in failures)


def test_large_batches_reach_pytorch_in_pieces_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = PICTURES.feed(PICTURES.crops)
    with TorchRunner(Tiny(weights()), ["coeffs"], "float32") as runner:
        whole = runner.infer(feed)["coeffs"]
    monkeypatch.setattr("face3d_trt.parity.runners.TORCH_PIXELS", 3 * SIDE * SIDE)
    with TorchRunner(Tiny(weights()), ["coeffs"], "float32") as runner:
        pieces = runner.infer(feed)["coeffs"]
    assert whole.shape == pieces.shape == (10, 257)
    np.testing.assert_allclose(whole, pieces, rtol=1e-5, atol=1e-5)


def test_a_batch_too_large_for_the_memory_is_left_out_and_the_others_run(tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    onnx.save(tiny_onnx(weights()), path)
    runner = float32_runner(path)
    candidate = Candidate(runner.name, "the graph", "fp32", lambda profile: runner)
    reference = Reference(TorchRunner(Tiny(weights()), ["coeffs"], "float32"), PICTURES)
    some = HostMemory(HostMemory(None, 16, 1).needed(SIZES[2]), 16, 1)
    found = measure(reference, [candidate], SIZES, some)
    assert found.left_out == (SIZES[3],)
    assert {entry.batch for entry in found.measured} == set(SIZES[:3])
    assert unrun_failures(found, {candidate.name: "the graph"}) == []
    nothing = measure(reference, [candidate], SIZES, HostMemory(0, 16, 1))
    assert nothing.left_out == SIZES
    (failure,) = unrun_failures(nothing, {candidate.name: "the graph"})
    assert "the graph was not compared at all" in failure.text


def test_the_truth_about_an_image_size_is_computed_once() -> None:
    class Counting(Tiny):
        calls = 0

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor]:
            type(self).calls += 1
            return super().forward(image)

    reference = Reference(TorchRunner(Counting(weights()), ["coeffs"], "float32"), PICTURES)
    first = reference.at(SIDE, SIDE)
    calls = Counting.calls
    assert reference.at(SIDE, SIDE) is first
    assert Counting.calls == calls > 0
