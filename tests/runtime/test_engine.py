"""Engine on doubles of CUDA and TensorRT; tests/gpu/test_engine.py runs the same on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.engine_cases import *  # noqa: F403
from tests.runtime.engine_parts import Parts


@pytest.fixture
def parts() -> Iterator[Parts]:
    made = Parts(real=False)
    yield made
    made.close()
