"""Looks at the machine: packages, TensorRT, GPUs, disk, model cache. States facts and judges nothing."""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc/driver/nvidia")
_TENSORRT = re.compile(r"tensorrt(-rtx)?(-cu\d+)?(-bindings|-libs)?")
_MODEL_FOLDERS = (  # where modelscope's downloaders, new and old, keep a model
    "models/{owner}--{name}/snapshots/*",
    "models/{owner}/{name}",
    "hub/models/{owner}/{name}",
    "hub/{owner}/{name}",
)
_MODEL_OWNERS, _MODEL_NAME = ("iic", "damo"), "cv_resnet50_face-reconstruction"
_MODEL_FILE = "pytorch_model.pt"
_NVIDIA_SMI_FIELDS = "name,compute_cap,driver_version,memory.total"
_NVIDIA_SMI_SECONDS = 10


@dataclass(frozen=True)
class GpuFacts:
    """One NVIDIA GPU. `compute_capability` is None where only the kernel driver could be asked."""

    name: str
    compute_capability: str | None  # "9.0"
    driver: str
    memory_bytes: int | None


@dataclass(frozen=True)
class TensorRTFacts:
    """The packages that provide one importable module: `tensorrt` or `tensorrt_rtx`."""

    module: str
    where: str | None  # folder; None: packages are there and the module is not
    packages: dict[str, str]  # package -> version

    @property
    def version(self) -> str:
        """The newest version among the packages."""
        return max(self.packages.values(), key=release, default="unknown version")


@dataclass(frozen=True)
class Machine:
    """Facts that the rules of `diagnosis` need."""

    python: tuple[int, int, int]
    platform: str
    packages: dict[str, str]  # normalised name -> version, of everything installed
    tensorrt: tuple[TensorRTFacts, ...]
    gpus: tuple[GpuFacts, ...]
    gpu_trouble: str | None  # a driver is there and does not answer
    folder: str
    free_bytes: int
    model_cache: str
    cached_models: tuple[str, ...]


def look(folder: Path) -> Machine:
    """Look at this machine; `folder` is where engines would be written. A fifth of a second, longer by nvidia-smi."""
    packages = installed()
    gpus, trouble = find_gpus()
    cache = Path(os.environ.get("MODELSCOPE_CACHE") or Path.home() / ".cache" / "modelscope")
    return Machine(
        python=sys.version_info[:3],
        platform=f"{platform.system()} {platform.machine()}",
        packages=packages,
        tensorrt=find_tensorrt(packages),
        gpus=gpus,
        gpu_trouble=trouble,
        folder=str(folder.resolve()),
        free_bytes=shutil.disk_usage(folder).free,
        model_cache=str(cache),
        cached_models=cached_models(cache),
    )


def normalise(name: str) -> str:
    """A package's name as the index compares it: `ml_dtypes` and `ml-dtypes` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` → (2, 13, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def installed() -> dict[str, str]:
    """Normalised name → version of every installed package. The first on the path wins, as it does for `import`."""
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a half-removed package has none
            packages.setdefault(normalise(name), distribution.version)
    return packages


def find_tensorrt(packages: dict[str, str]) -> tuple[TensorRTFacts, ...]:
    """The TensorRT flavours installed, full TensorRT first."""
    flavours = []
    for module in ("tensorrt", "tensorrt_rtx"):
        rtx = module == "tensorrt_rtx"
        parts = {n: v for n, v in packages.items() if _TENSORRT.fullmatch(n) and n.startswith("tensorrt-rtx") == rtx}
        where = _folder_of(module)
        if parts or where:
            flavours.append(TensorRTFacts(module, where, parts))
    return tuple(flavours)


def find_gpus() -> tuple[tuple[GpuFacts, ...], str | None]:
    """The GPUs, and what the driver said when it is there and does not answer.

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


def cached_models(cache: Path) -> tuple[str, ...]:
    """Folders under `cache` that hold the face reconstruction model's weights."""
    patterns = (p.format(owner=owner, name=_MODEL_NAME) for owner in _MODEL_OWNERS for p in _MODEL_FOLDERS)
    return tuple(str(f.parent) for pattern in patterns for f in sorted(cache.glob(f"{pattern}/{_MODEL_FILE}")))


def _folder_of(module: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return str(Path(spec.origin).parent) if spec and spec.origin else None


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
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=False)
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
