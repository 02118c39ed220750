from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from face3d_trt.doctor import machine

H200 = "NVIDIA H200, 9.0, 580.159.03, 143771\n"  # as nvidia-smi answers
PROC_VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\nGCC version: 13.3\n"
PROC_GPU = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 200\nGPU UUID: \t GPU-0\nBus Location: \t 0000:18:00.0\n"


def test_every_installed_package_is_found_under_the_name_the_index_uses():
    packages = machine.installed()
    assert packages["numpy"] == importlib.metadata.version("numpy")
    assert packages["typing-extensions"] == importlib.metadata.version("typing_extensions")


def test_a_tensorrt_on_this_machine_is_where_it_says():
    for flavour in machine.find_tensorrt(machine.installed()):
        assert flavour.where is not None
        assert (Path(flavour.where) / "__init__.py").is_file()
        assert flavour.packages


def test_packages_of_one_flavour_are_not_counted_to_the_other():
    packages = {"tensorrt": "11.4", "tensorrt-cu13-libs": "11.4", "tensorrt-rtx-cu13": "1.7", "tensorrt-lean": "11.4"}
    full, rtx = (flavour.packages for flavour in machine.find_tensorrt(packages))
    assert full == {"tensorrt": "11.4", "tensorrt-cu13-libs": "11.4"}
    assert rtx == {"tensorrt-rtx-cu13": "1.7"}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2.13.0+cpu", (2, 13, 0)), ("1.7.1.116", (1, 7, 1, 116)), ("0.48.0rc1", (0, 48, 0)), ("unknown", ())],
)
def test_release_numbers(text, numbers):
    assert machine.release(text) == numbers


def test_nvidia_smi_answers_are_read():
    (gpu,) = machine.parse_nvidia_smi(H200)
    assert (gpu.name, gpu.compute_capability, gpu.driver) == ("NVIDIA H200", "9.0", "580.159.03")
    assert gpu.memory_bytes == 143771 * 1024**2


def test_unified_memory_has_no_size_of_its_own():
    (gpu,) = machine.parse_nvidia_smi("NVIDIA GB10, 12.1, 580.95.05, [N/A]\n")
    assert gpu.memory_bytes is None


def test_the_kernel_driver_alone_names_the_gpu(tmp_path):
    (tmp_path / "gpus/0000:18:00.0").mkdir(parents=True)
    (tmp_path / "gpus/0000:18:00.0/information").write_text(PROC_GPU)
    (tmp_path / "version").write_text(PROC_VERSION)
    (gpu,) = machine.read_proc(tmp_path)
    assert (gpu.name, gpu.driver, gpu.compute_capability) == ("NVIDIA H200", "580.159.03", None)


def test_no_driver_means_no_gpu(tmp_path):
    assert machine.read_proc(tmp_path) == ()


def test_a_driver_that_does_not_answer_is_trouble_and_not_a_gpu(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    gpus, trouble = machine.ask_nvidia_smi()
    assert gpus == ()
    assert trouble == "Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.parametrize(
    "folder",
    [
        "models/damo--cv_resnet50_face-reconstruction/snapshots/v2.0.0-HRN",
        "models/iic/cv_resnet50_face-reconstruction",
        "hub/damo/cv_resnet50_face-reconstruction",
    ],
)
def test_a_cached_model_is_found_in_each_layout_once_its_weights_are_there(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True)
    assert machine.cached_models(tmp_path) == ()  # a download that stopped leaves such a folder
    (tmp_path / folder / "pytorch_model.pt").touch()
    assert machine.cached_models(tmp_path) == (str(tmp_path / folder),)
