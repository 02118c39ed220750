"""The GPU that tests of `monitor` ask: a double of NVML, and the real one where there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.monitor.double import FakeNvml

from face3d_trt.monitor import memory, nvml


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    """Puts a double in NVML's place and gives it."""

    def put(**changed: Any) -> FakeNvml:
        double = FakeNvml(**changed)
        monkeypatch.setitem(sys.modules, "pynvml", double)
        monkeypatch.setattr(nvml, "bus_address", lambda index: b"0000:18:00.0")
        monkeypatch.setattr(memory, "gpu_count", lambda: 1)
        return double

    return put


@pytest.fixture
def some_gpu(request: pytest.FixtureRequest) -> None:
    """A GPU to ask: "double", or "real"; each file parametrizes it, so that its mark `gpu` is seen there."""
    if request.param == "double":
        request.getfixturevalue("fake")()
    else:
        pytest.importorskip("pynvml")
