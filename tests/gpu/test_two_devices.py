"""Several engines at once give what each gives alone: on one GPU, on two, beside torch, and with pycuda's arrays."""

from __future__ import annotations

import pytest
from tools.proof.children import run_child
from tools.proof.two_engines import at_once

from face3d_trt.engine.gpu import visible_gpus

pytestmark = pytest.mark.gpu


def test_two_precisions_on_one_gpu(plans):
    from face3d_trt import Engine

    with Engine(plans / "small_fp16.plan") as first, Engine(plans / "small_int8.plan") as second:
        found = at_once([first, second], calls=20)
    assert (found["wrong"], found["errors"]) == (0, [])


def test_devices_0_and_1(plans):
    from face3d_trt import Engine

    gpus = visible_gpus()
    if len(gpus) < 2 or gpus[0].name != gpus[1].name:
        pytest.skip(f"needs two GPUs of one model; here: {', '.join(gpu.name for gpu in gpus)}")
    plan = plans / "small_fp16.plan"
    with Engine(plan, device=0) as first, Engine(plan, device=1) as second:
        found = at_once([first, second], calls=20)
    assert (found["wrong"], found["errors"]) == (0, [])


@pytest.mark.parametrize("order", ["torch first", "pycuda first"])
def test_torch_and_the_runtime_in_one_process(order):
    for module in ("torch", "pycuda"):
        pytest.importorskip(module)
    child = run_child("beside_torch:together", order=order, rounds=20, device=0)
    found = child.expect()
    assert (found["wrong"], found["torch_wrong"], found["errors"], child.stderr) == (0, 0, [], "")


def test_pycuda_arrays_in_and_device_arrays_out(plans):
    from tools.proof.two_engines import with_pycuda

    from face3d_trt import Engine

    with Engine(plans / "small_fp16.plan") as engine:
        assert with_pycuda(engine, 0) == {"wrong": 0, "stayed": [8, 257]}
