"""On a machine with an NVIDIA GPU, `doctor` and nvidia-smi have to agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from face3d_trt.doctor.diagnosis import diagnose
from face3d_trt.doctor.gpus import ask_nvidia_smi, find_gpus, list_gpus
from face3d_trt.doctor.machine import look

pytestmark = pytest.mark.gpu


def test_every_gpu_is_named_as_nvidia_smi_lists_it():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    gpus, trouble = find_gpus()
    assert trouble is None
    assert [gpu.name for gpu in gpus] == re.findall(r"^GPU \d+: (.+) \(UUID", listed, re.MULTILINE)


def test_nvml_and_nvidia_smi_give_the_same_facts():
    pytest.importorskip("pynvml")
    by_nvml, by_program = list_gpus()[0], ask_nvidia_smi()[0]
    assert [(g.name, g.compute_capability, g.driver) for g in by_nvml] == [
        (g.name, g.compute_capability, g.driver) for g in by_program
    ]


def test_a_gpu_with_its_tensorrt_runs_engines():
    pytest.importorskip("tensorrt")
    tasks = {task.name: task for task in diagnose(look(Path())).tasks}
    assert tasks["run engines"].can
