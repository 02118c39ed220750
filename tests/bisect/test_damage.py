"""Damage to the learned stand-in's graphs: it is found at the node that has it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest
from tests.bisect import damages

from face3d_trt.bisect.alone import Found, channel_order, measure_nodes
from face3d_trt.bisect.pair import Pair, run
from face3d_trt.bisect.state import State
from face3d_trt.faces.samples import sample_crops
from face3d_trt.faces.tensor import to_input

if TYPE_CHECKING:
    import numpy as np

    from face3d_trt.records import Precision

NODE = "backbone.layer3.1.conv2/Conv"
FEW = "backbone.layer4.2.conv2/Conv"  # 128 channels, of which two are swapped
FIRST = "backbone.conv1/Conv"


@dataclass(frozen=True)
class Stand:
    """The float32 graph, the typed ones, and what float32 says of four of the package's faces."""

    folder: Path
    exact: onnx.ModelProto
    pictures: np.ndarray
    right: np.ndarray

    def pair(self, precision: str, change: Callable[[onnx.ModelProto], None] | None = None) -> Pair:
        typed = onnx.load(self.folder / f"face3d_resnet50.{precision}.onnx")
        if change is not None:
            change(typed)
        return Pair(self.exact, typed)

    def found(self, pair: Pair, precision: Precision, order: str = "RGB") -> dict[str, Found]:
        method = "output" if precision == "int8" else None
        return measure_nodes(pair, (), self.pictures, precision, order, State(None, ""), method=method)


@pytest.fixture(scope="module")
def stand(engines: Path) -> Stand:
    exact = onnx.load(engines / "face3d_resnet50.onnx")
    pictures = to_input(sample_crops()[2:6], "float32")
    return Stand(engines, exact, pictures, run(exact, {"input": pictures}, exact=True)[0])


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_good_graph_has_no_damage_though_its_int8_nodes_are_off_by_tens_of_per_cent(
    stand: Stand, precision: Precision
) -> None:
    pair = stand.pair(precision)
    assert channel_order(pair, stand.pictures, stand.right) == "RGB"
    found = stand.found(pair, precision)
    assert [name for name, each in found.items() if each.damage or each.misfit] == []
    largest = max(each.own_error or 0 for each in found.values())
    if precision == "int8":
        assert largest > 0.2  # so a node's own error tells nothing of damage
    else:
        assert 2**-13 < largest < 2**-8  # a rounding or a few to 11 bits


@pytest.mark.parametrize(
    ("precision", "node", "change"),
    [
        ("fp16", NODE, damages.louder),
        ("int8", FEW, damages.swapped),
        ("int8", NODE, lambda model, name: damages.wrong_scale(model, name, 1.5, dq_alone=True)),
        ("int8", "final_layers.0/Conv", damages.louder),  # which int8 leaves in fp16
    ],
)
def test_damage_is_named_at_its_node_alone(
    stand: Stand, precision: Precision, node: str, change: Callable[[onnx.ModelProto, str], None]
) -> None:
    found = stand.found(stand.pair(precision, lambda model: change(model, node)), precision)
    assert [name for name, each in found.items() if each.damage] == [node]
    assert "more than rounding explains" in str(found[node].damage)
    assert found[node].errors  # what it costs is measured, though it may not be lowered at all


@pytest.mark.parametrize(("factor", "words"), [(0.25, "cuts"), (8.0, "times the largest value of a typical picture")])
def test_a_range_that_does_not_fit_is_told_from_damage(stand: Stand, factor: float, words: str) -> None:
    pair = stand.pair("int8", lambda model: damages.wrong_scale(model, NODE, factor))
    found = stand.found(pair, "int8")
    assert [name for name, each in found.items() if each.misfit] == [NODE]
    assert words in str(found[NODE].misfit)
    assert found[NODE].damage is None


@pytest.mark.parametrize(
    ("precision", "change"),
    [("int8", damages.bgr_input), ("fp16", lambda model: damages.bgr_weights(model, FIRST))],
    ids=["a front that turns the channels", "weights for BGR"],
)
def test_bgr_is_no_nodes_damage(stand: Stand, precision: Precision, change: Callable[[onnx.ModelProto], None]) -> None:
    pair = stand.pair(precision, change)
    order = channel_order(pair, stand.pictures, stand.right)
    assert order == "BGR"
    found = stand.found(pair, precision, order)
    assert [name for name, each in found.items() if each.damage or each.misfit] == []
