from __future__ import annotations

from face3d_trt.doctor import gpus

H200 = "NVIDIA H200, 9.0, 580.159.03, 143771\n"  # as nvidia-smi answers
PROC_VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\nGCC version: 13.3\n"
PROC_GPU = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 200\nGPU UUID: \t GPU-0\nBus Location: \t 0000:18:00.0\n"


def test_nvidia_smi_answers_are_read():
    (gpu,) = gpus.parse_nvidia_smi(H200)
    assert (gpu.name, gpu.compute_capability, gpu.driver) == ("NVIDIA H200", "9.0", "580.159.03")
    assert gpu.memory_bytes == 143771 * 1024**2


def test_unified_memory_has_no_size_of_its_own():
    (gpu,) = gpus.parse_nvidia_smi("NVIDIA GB10, 12.1, 580.95.05, [N/A]\n")
    assert gpu.memory_bytes is None


def test_the_kernel_driver_alone_names_the_gpu(tmp_path):
    (tmp_path / "gpus/0000:18:00.0").mkdir(parents=True)
    (tmp_path / "gpus/0000:18:00.0/information").write_text(PROC_GPU)
    (tmp_path / "version").write_text(PROC_VERSION)
    (gpu,) = gpus.read_proc(tmp_path)
    assert (gpu.name, gpu.driver, gpu.compute_capability) == ("NVIDIA H200", "580.159.03", None)


def test_no_driver_means_no_gpu(tmp_path):
    assert gpus.read_proc(tmp_path) == ()


def test_a_driver_that_does_not_answer_is_trouble_and_not_a_gpu(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found, trouble = gpus.ask_nvidia_smi()
    assert found == ()
    assert trouble == "Failed to initialize NVML: Driver/library version mismatch"
