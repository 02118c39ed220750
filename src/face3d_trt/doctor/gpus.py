"""Which NVIDIA GPUs this machine has, and why CUDA does not show them where it does not."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from face3d_trt.engine.gpu import visible_gpus

PROC = Path("/proc/driver/nvidia")
_SECONDS = 10  # nvidia-smi wakes the GPUs first where nothing else keeps them awake


@dataclass(frozen=True)
class GpuFacts:
    """One NVIDIA GPU; None stands for what could not be asked."""

    name: str
    compute_capability: str | None  # "9.0"
    driver: str
    memory_bytes: int | None


def find_gpus() -> tuple[tuple[GpuFacts, ...], str | None]:
    """The GPUs that CUDA gives this process, which `build` goes by too; and what is wrong where it gives none.

    Without a driver nothing is wrong.
    """
    visible = visible_gpus()
    listed, trouble = list_gpus()
    if visible:
        memory = {gpu.name: gpu.memory_bytes for gpu in listed}
        return tuple(GpuFacts(g.name, g.compute_capability, g.driver, memory.get(g.name)) for g in visible), None
    if not listed:
        return (), trouble
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = "libcuda does not answer" if hidden is None else f"CUDA_VISIBLE_DEVICES is {hidden!r}"
    return (), f"{listed[0].name} is there, and CUDA shows it to no process like this one: {why}"


def list_gpus() -> tuple[tuple[GpuFacts, ...], str | None]:
    """The GPUs that the driver lists, and what it said where it is there and does not answer.

    Asks NVML where nvidia-ml-py is installed, else nvidia-smi, else reads /proc.
    """
    troubles = []
    for ask in (_ask_nvml, ask_nvidia_smi):
        gpus, trouble = ask()
        if gpus:
            return gpus, None
        if trouble:
            troubles.append(trouble)
    gpus = read_proc(PROC)
    if gpus and not troubles:
        return gpus, None
    loaded = gpus or (PROC / "version").exists()
    return (), troubles[0] if troubles and loaded else None


def _ask_nvml() -> tuple[tuple[GpuFacts, ...], str | None]:
    try:
        import pynvml
    except ImportError:
        return (), None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), str(error)
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return tuple(
            GpuFacts(
                name=_text(pynvml.nvmlDeviceGetName(handle)),
                compute_capability="{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
                driver=driver,
                memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for handle in handles
        ), None
    except pynvml.NVMLError as error:
        return (), str(error)
    finally:
        pynvml.nvmlShutdown()


def ask_nvidia_smi() -> tuple[tuple[GpuFacts, ...], str | None]:
    """The GPUs that nvidia-smi lists, and its complaint when it fails; neither where it is not installed."""
    command = [
        "nvidia-smi",
        "--query-gpu=name,compute_cap,driver_version,memory.total",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        return (), None
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"nvidia-smi: {error}"
    if answer.returncode:
        return (), (answer.stdout + answer.stderr).strip().partition("\n")[0] or f"nvidia-smi: exit {answer.returncode}"
    return parse_nvidia_smi(answer.stdout), None


def parse_nvidia_smi(text: str) -> tuple[GpuFacts, ...]:
    """The GPUs in what nvidia-smi answers to a query for name, compute capability, driver and MiB of memory, as CSV."""
    rows = [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if len(row) == 4]
    return tuple(
        GpuFacts(name, capability, driver, int(mib) << 20 if mib.isdigit() else None)  # "[N/A]" on unified memory
        for name, capability, driver, mib in rows
    )


def read_proc(proc: Path) -> tuple[GpuFacts, ...]:
    """The GPUs that the kernel driver lists under `proc`, by name."""
    version = proc / "version"
    if not version.exists():
        return ()
    driver = re.search(r"\b\d+\.\d+(\.\d+)?\b", version.read_text(errors="replace"))
    gpus = []
    for file in sorted(proc.glob("gpus/*/information")):
        model = re.search(r"^Model:\s*(.+)$", file.read_text(errors="replace"), re.MULTILINE)
        gpus.append(GpuFacts(model[1] if model else "NVIDIA GPU", None, driver[0] if driver else "unknown", None))
    return tuple(gpus)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # old NVML bindings answer in bytes
