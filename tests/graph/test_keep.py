"""Nodes that stay in higher precision: what it does to the graph, and the lists that name them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.tiny import Recorder, crops, run, tiny_graph, write_crops, write_tiny

from face3d_trt.errors import UsageError
from face3d_trt.faces.tensor import to_input
from face3d_trt.graph.counts import operations
from face3d_trt.graph.fp16 import to_fp16
from face3d_trt.graph.int8 import to_int8
from face3d_trt.graph.keep import keep_higher, lowered, read_keep
from face3d_trt.graph.opset import at_opset
from face3d_trt.graph.parts import split
from face3d_trt.graph.precision import PrecisionOptions, typed_graph
from face3d_trt.parity.rounding import round_explicitly

CONV = "backbone.layer1.0.conv1/Conv"
ADD = "backbone.layer1.1/Add"
POOL = "backbone.maxpool/MaxPool"


def precisions(model: onnx.ModelProto) -> dict[str, str]:
    return {each.name: each.precision for each in operations(model)}


def keep_file(folder: Path, *names: str) -> Path:
    path = folder / "keep.json"
    path.write_text(json.dumps({"keep": [{"node": name, "reason": "for the test"} for name in names]}))
    return path


@pytest.fixture(scope="module")
def network() -> onnx.ModelProto:
    return at_opset(split(tiny_graph()).network, 19)


@pytest.mark.parametrize("high", ["fp16", "fp32"])
def test_kept_int8_nodes_read_what_stands_before_their_pairs(network: onnx.ModelProto, high: str) -> None:
    typed = to_int8(network, "input", crops(3), "max", high_precision=high).network  # type: ignore[arg-type]
    kept = keep_higher(typed, network, [CONV, ADD])
    onnx.checker.check_model(kept, full_check=True)
    changed = {name: each for name, each in precisions(kept).items() if precisions(typed)[name] != each}
    assert changed == {CONV: high, ADD: high}
    everything = keep_higher(typed, network, list(lowered(typed, network, "int8")))
    assert not any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in everything.graph.node)
    exact = run(network, crops(2, seed=5))[0]
    error = np.abs(run(everything, crops(2, seed=5))[0] - exact).max() / np.abs(exact).max()
    assert error < (1e-5 if high == "fp32" else 20 * 2**-11)


def test_kept_fp16_nodes_compute_in_float32_with_float32_weights(network: onnx.ModelProto) -> None:
    typed = to_fp16(network, "input", to_input(crops(2), "float32")).network
    kept = keep_higher(typed, network, [CONV, POOL])
    onnx.checker.check_model(kept, full_check=True)
    changed = {name: each for name, each in precisions(kept).items() if precisions(typed)[name] != each}
    assert changed == {CONV: "fp32", POOL: "fp32"}
    exact, few, many = (
        run(round_explicitly(graph), crops(2, seed=5))[0]
        for graph in (network, typed, keep_higher(typed, network, [node.name for node in network.graph.node]))
    )
    assert 0 < np.abs(many - exact).max() < np.abs(few - exact).max()  # results are still rounded between the nodes


@pytest.mark.parametrize(
    ("precision", "strongly_typed", "changes"),
    [("int8", True, True), ("int8", False, True), ("fp16", True, True), ("fp16", False, False)],
)
def test_a_list_reaches_the_graph_and_its_record(
    tmp_path: Path, precision: str, strongly_typed: bool, changes: bool
) -> None:
    """Under the fp16 flag the graph has no types: the record tells the builder."""
    source, calib = write_tiny(tmp_path / "face.onnx"), write_crops(tmp_path / "calib", 3)
    output = tmp_path / f"out.{precision}.onnx"

    def made(keep: Path | None, report: Recorder) -> tuple[dict[str, str], dict[str, str], str]:
        options = PrecisionOptions(
            precision,  # type: ignore[arg-type]
            calib if precision == "int8" else None,
            "max",
            strongly_typed,
            19 if strongly_typed else 17,
            keep,
        )
        record = typed_graph(source, output, options, report)
        return precisions(onnx.load(output)), {each.node: each.reason for each in record.kept}, record.fingerprint

    plain, kept, key = made(None, Recorder())
    assert CONV not in kept
    report = Recorder()
    found, kept, other = made(keep_file(tmp_path, CONV), report)
    assert kept[CONV] == "for the test"
    assert other != key
    assert ({name for name in plain if found[name] != plain[name]} == {CONV}) == changes
    assert any("some nodes of it kept higher" in text for text in report.stages)  # nothing is calibrated again
    again, direct = Recorder(), Recorder()
    assert made(keep_file(tmp_path, CONV), again)[2] == other
    assert any(text.startswith("reused") for text in again.stages)
    output.unlink()
    assert made(keep_file(tmp_path, CONV), direct)[0] == found  # the same from the beginning
    assert not any("some nodes of it" in text for text in direct.stages)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"keep": [{"node": "backbone.layer1.0.conv11/Conv"}]}', "backbone.layer1.0.conv1/Conv"),
        ('{"keep": [{"node": "a"}, {"node": "a"}]}', "names a more than once"),
        ('{"nodes": []}', "is not a list of nodes to keep: Field required"),
        ("[", "is not a list of nodes to keep"),
        (None, "No such file"),
    ],
)
def test_a_list_that_cannot_be_used_is_an_error_that_helps(tmp_path: Path, content: str | None, words: str) -> None:
    source, path = write_tiny(tmp_path / "face.onnx"), tmp_path / "keep.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError) as caught:
        typed_graph(source, tmp_path / "out.fp16.onnx", PrecisionOptions("fp16", keep=path))
    assert words in str(caught.value)
    assert "face3d-trt bisect" in str(caught.value)
    assert not (tmp_path / "out.fp16.onnx").exists()


def test_what_bisect_adds_to_an_entry_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "keep.json"
    path.write_text(
        '{"schema_version": 1, "keep": [{"node": "a", "loss": 0.5, "share": 0.1, "reason": "why"}], "x": 1}'
    )
    (entry,) = read_keep(path)
    assert (entry.node, entry.reason) == ("a", "why")
