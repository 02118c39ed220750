"""The ceilings of a GPU, measured by torch; shortened here, so no figure means anything."""

from __future__ import annotations

import pytest

from face3d_trt.bench import ceilings
from face3d_trt.bench.records import Ceilings

pytestmark = pytest.mark.gpu


def test_a_gpu_has_them_all_and_torch_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    for name, value in (("_WARM_UP_S", 0.0), ("_WINDOW_S", 1e-3), ("_SIDES", (256,)), ("_FP32_SIDES", (256,))):
        monkeypatch.setattr(ceilings, name, value)
    before = torch.get_float32_matmul_precision()
    found = ceilings.measure_ceilings(0)
    assert [name for name in Ceilings.model_fields if getattr(found, name) is None] == []
    assert torch.get_float32_matmul_precision() == before
