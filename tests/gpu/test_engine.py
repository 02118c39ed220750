"""Engine on a GPU: the tests of tests/runtime/test_engine.py with the real CUDA and TensorRT."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.engine_cases import *  # noqa: F403
from tests.runtime.engine_parts import Parts

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tests.runtime.network import build_plan

    pytest.importorskip("tensorrt")
    pytest.importorskip("pycuda")
    path = tmp_path_factory.mktemp("plan") / "network.plan"
    path.write_bytes(build_plan())
    return str(path)


@pytest.fixture
def parts(plan: str) -> Iterator[Parts]:
    made = Parts(real=True, file=plan)
    yield made
    made.close()
