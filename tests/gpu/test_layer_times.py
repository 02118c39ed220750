"""Layers of an engine that TensorRT builds here and now, timed on the GPU. Needs no onnx and no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from face3d_trt.engine.flavour import find_flavour
from face3d_trt.engine.layer_times import layers_of
from face3d_trt.engine.profile import Profile
from face3d_trt.engine.shares import shares
from face3d_trt.engine.values import Recipe
from face3d_trt.report import Silent

if TYPE_CHECKING:
    from face3d_trt.engine.layer_times import EngineLayers
    from face3d_trt.records import Precision

pytestmark = pytest.mark.gpu

GRAPH = Path(__file__).parents[1] / "engine" / "data" / "tiny.fp32.onnx"
CONVOLUTIONS = 6  # of the graph; fused ones count once
OPTS = (2, 8)


class Listener(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture(scope="module", params=["fp32", "fp16"])
def built(request: pytest.FixtureRequest) -> tuple[Precision, EngineLayers, list[str]]:
    pytest.importorskip("tensorrt")
    pytest.importorskip("pycuda")
    flavour = find_flavour()
    if request.param == "fp16" and flavour.strongly_typed:
        pytest.skip("the graph is float32, and this TensorRT obeys it")
    profiles = tuple(Profile.parse(f"min=1x3x224x224,opt={opt}x3x224x224,max=8x3x224x224") for opt in OPTS)
    recipe, report = Recipe(request.param, profiles), Listener()
    plan = flavour.build(flavour.parse(GRAPH.read_bytes(), GRAPH.name), recipe)
    return request.param, layers_of(flavour, plan, recipe, report), report.warnings


def test_each_convolution_is_listed_once_and_timed(built: tuple[Precision, EngineLayers, list[str]]) -> None:
    _, found, warnings = built
    assert warnings == []
    assert found.timed_at == (max(OPTS), 3, 224, 224)
    convolutions = [each for each in found.layers if each.convolution]
    assert 1 <= len(convolutions) <= CONVOLUTIONS  # twice as many would be those of both profiles
    assert all(each.time_ms and 0 < each.time_ms < 100 for each in convolutions)


def test_formats_are_known_and_no_time_is_left_over(built: tuple[Precision, EngineLayers, list[str]]) -> None:
    """The inspector is given a context with shapes, and the profiler's names are the inspector's."""
    precision, found, _ = built
    summed = shares(found.layers)
    assert summed.time is not None
    assert summed.time.get("other", 0.0) < 0.01
    allowed = {"fp32", "reformat"} if precision == "fp32" else {"fp32", "fp16", "reformat"}
    assert set(summed.time) <= allowed
