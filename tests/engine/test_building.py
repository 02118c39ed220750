"""What a build makes of an engine's inspection; the builds themselves are in test_flavour.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.test_layers import REAL

from face3d_trt.engine.building import _counted
from face3d_trt.errors import BuildError

UNREADABLE = '{"Layers": [{"Name": "a", "Metadata": "{"dtype": 1}"}]}'  # quotes that are not escaped


def flavour(*, strongly_typed: bool) -> Any:
    return SimpleNamespace(strongly_typed=strongly_typed)


def test_the_layers_with_weights_are_counted() -> None:
    found = _counted(flavour(strongly_typed=False), REAL)
    assert found is not None
    assert found.convolutions == {"int8": 3, "fp16": 1}


def test_an_unreadable_inspection_fails_a_build_only_where_nothing_else_tells_the_precision() -> None:
    assert _counted(flavour(strongly_typed=True), UNREADABLE) is None
    with pytest.raises(BuildError, match="precision is unknown"):
        _counted(flavour(strongly_typed=False), UNREADABLE)
