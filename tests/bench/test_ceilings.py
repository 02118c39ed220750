"""The ceilings: what is counted, and what a machine without a GPU has."""

from __future__ import annotations

import pytest
import torch

from face3d_trt.bench import ceilings


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of a millisecond on small matrices."""
    for name, value in (("_WARM_UP_S", 0.0), ("_WINDOW_S", 1e-3), ("_CPU_SIDES", (64,)), ("_CPU_BYTES", 1 << 20)):
        monkeypatch.setattr(ceilings, name, value)


@pytest.mark.parametrize(("product", "dtype"), [("mm", torch.float32), ("_int_mm", torch.int8)])
def test_a_multiply_add_counts_as_two(product: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    real = getattr(torch, product)
    monkeypatch.setattr(torch, product, lambda a, b, **to: calls.append((*a.shape, *b.shape)) or real(a, b, **to))

    def half_a_second(call: ceilings.Call) -> float:
        call()
        return 0.5

    device = torch.device("cpu")
    if dtype == torch.int8:
        rate = ceilings._int8_rate(torch, half_a_second, device, 64)
    else:
        rate = ceilings._product_rate(torch, half_a_second, device, dtype, 64)
    assert calls == [(64, 64, 64, 64)]
    assert rate == 2 * 64**3 / 0.5


def test_a_cpu_has_float32_and_memory(short: None) -> None:
    found = ceilings.measure_ceilings(None)
    assert {name for name, value in found if value is not None} == {"fp32_flops", "memory_bytes_per_s"}


def test_what_cannot_be_measured_is_said_and_left_out(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []

    class Listening(ceilings.SILENT.__class__):  # type: ignore[misc]
        def warn(self, text: str) -> None:
            warned.append(text)

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch, "mm", refused)
    found = ceilings.measure_ceilings(None, Listening())
    assert found.fp32_flops is None
    assert found.memory_bytes_per_s is not None
    assert warned == ["ceiling fp32_flops was not measured: out of memory"]
