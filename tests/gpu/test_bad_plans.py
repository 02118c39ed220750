"""Plans that cannot be run meet with an error, also where TensorRT itself is asked; never with a crash."""

from __future__ import annotations

import shutil

import pytest
from tools.proof.bad_plans import all_cases
from tools.proof.children import run_child

from face3d_trt.errors import PlanError
from face3d_trt.records import manifest_path

pytestmark = pytest.mark.gpu


@pytest.fixture
def cases(plans, tmp_path):
    """By name; with the plan that they spoil."""
    plan, other, onnx = plans / "small_fp16.plan", plans / "small_int8.plan", tmp_path / "a.onnx"
    onnx.write_bytes(b"\x08\x09\x12\x0aface3d-trt")  # how a ModelProto begins: IR version 9, the producer's name
    found = {case.name: case for case in all_cases(other, plan.stat().st_size, onnx)}
    home = tmp_path / "home"
    home.mkdir()
    for path in (plan, manifest_path(plan), other, manifest_path(other)):
        shutil.copy(path, home)
    return found, home / plan.name


def spoil(case, good, folder):
    folder.mkdir()
    for path in good.parent.iterdir():
        if case.other or path.name.startswith("small_fp16"):
            shutil.copy(path, folder)
    case.change(folder / good.name)
    return folder / good.name


def test_what_is_seen_without_tensorrt_is_refused_each_in_its_own_words(cases, tmp_path):
    from face3d_trt import Engine

    found, good = cases
    messages = {}
    for number, case in enumerate(case for name, case in found.items() if "forged" not in name):
        plan = spoil(case, good, tmp_path / str(number))
        with pytest.raises(PlanError) as caught:
            Engine(plan)
        assert caught.value.run, case.name
        messages[case.name] = str(caught.value).replace(str(plan.parent), "")
    assert len(set(messages.values())) == len(messages) - 1  # an ONNX file is one, with and without a manifest


@pytest.mark.parametrize(
    "part", ["random bytes, forged", "TensorRT's version tag", "ONNX file, forged", "the last half zero"]
)
def test_what_tensorrt_refuses_is_an_error_of_ours(cases, tmp_path, part):
    found, good = cases
    (case,) = (case for name, case in found.items() if part in name)
    child = run_child("bad_plans:attempt", plan=str(spoil(case, good, tmp_path / "spoiled")), device=0)
    assert child.code == 0, child.stderr
    assert child.answer is not None
    assert child.answer["error"] in ("PlanError", "EngineError"), child.answer


@pytest.mark.parametrize("place", [1, 5, 9])
def test_a_cut_plan_whose_manifest_vouches_for_it_is_refused_too(cases, tmp_path, place):
    found, good = cases
    size = good.stat().st_size
    case = found[f"cut off after {size * place // 10:,} bytes, forged manifest"]
    child = run_child("bad_plans:attempt", plan=str(spoil(case, good, tmp_path / "spoiled")), device=0)
    assert child.code == 0, child.stderr
    assert child.answer is not None
    assert child.answer["error"] in ("PlanError", "EngineError"), child.answer
