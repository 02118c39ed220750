"""Which engine a path becomes on this machine."""

from __future__ import annotations

import logging

import pytest

from face3d_trt import Engine, OrtEngine, open_engine
from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.errors import InputError, MissingError, UsageError

without_gpu = pytest.mark.skipif(bool(visible_gpus()), reason="this machine has a GPU")


@without_gpu
def test_a_plan_becomes_its_twin_and_the_log_says_so(float_plan, caplog):
    with caplog.at_level(logging.WARNING, "face3d_trt"), open_engine(float_plan, contexts=2) as engine:
        assert isinstance(engine, OrtEngine)
    assert "no GPU here" in caplog.text
    assert float_plan.name in caplog.text


def test_the_cpu_on_request_is_nothing_to_warn_of(float_plan, caplog):
    with caplog.at_level(logging.DEBUG), open_engine(float_plan, on="cpu") as engine:
        assert "on the CPU" in engine.backend
    assert caplog.text == ""


@without_gpu
def test_an_onnx_file_runs_on_onnx_runtime(float_plan, caplog):
    with caplog.at_level(logging.DEBUG), open_engine(float_plan.with_suffix(".onnx")) as engine:
        assert isinstance(engine, OrtEngine)
    assert caplog.text == ""


@without_gpu
@pytest.mark.parametrize("suffix", [".onnx", ".plan"])
def test_gpu_on_request_falls_back_on_nothing(float_plan, suffix):
    with pytest.raises(MissingError):
        open_engine(float_plan.with_suffix(suffix), on="gpu")


def test_unknown_options_are_named(float_plan):
    with pytest.raises(UsageError, match="no option context") as caught:
        open_engine(float_plan, context=2)
    assert "contexts" in caught.value.allowed
    with pytest.raises(UsageError, match="on='tpu'"):
        open_engine(float_plan, on="tpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", "cuda:0", -1, None, True])
def test_a_device_that_no_machine_has_is_refused_without_a_gpu_too(float_plan, device):
    with pytest.raises(UsageError, match="device="):
        open_engine(float_plan, device=device)


def test_check_reaches_the_twin(float_plan):
    import numpy as np

    with open_engine(float_plan, on="cpu", check=False) as engine:
        assert engine(np.full((1, 3, 224, 224), 7, np.float32))["coeffs"].shape == (1, 257)


@pytest.mark.parametrize(
    ("option", "value"),
    [("contexts", 0), ("contexts", "2"), ("contexts", True), ("memory_limit", "1GiB"), ("memory_limit", 0)],
)
def test_options_that_no_engine_takes_are_refused_without_a_gpu_too(float_plan, option, value):
    with pytest.raises(InputError, match=option) as caught:
        open_engine(float_plan, on="cpu", **{option: value})
    with pytest.raises(InputError, match=option):
        Engine(float_plan, **{option: value})
    assert caught.value.allowed


@pytest.mark.parametrize(("option", "value"), [("depth", 2.5), ("depth", 0), ("threads", -1), ("threads", "2")])
def test_options_of_the_twin_are_numbers(float_plan, option, value):
    with pytest.raises(InputError, match=option):
        OrtEngine(float_plan, **{option: value})
