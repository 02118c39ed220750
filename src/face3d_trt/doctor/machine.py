"""Looks at the machine: packages, TensorRT, disk, model cache. States facts and judges nothing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from face3d_trt.doctor.gpus import GpuFacts, find_gpus

_TENSORRT = re.compile(r"tensorrt(-rtx)?(-cu\d+)?(-bindings|-libs)?")
_MODEL_FOLDERS = (  # where modelscope's downloaders, new and old, keep a model
    "models/{owner}--{name}/snapshots/*",
    "models/{owner}/{name}",
    "hub/models/{owner}/{name}",
    "hub/{owner}/{name}",
)
_MODEL_OWNERS, _MODEL_NAME = ("iic", "damo"), "cv_resnet50_face-reconstruction"
_MODEL_FILE = "pytorch_model.pt"


@dataclass(frozen=True)
class TensorRTFacts:
    """The packages that provide one importable module: `tensorrt` or `tensorrt_rtx`."""

    module: str
    where: str | None  # folder; None: packages are there and the module is not
    packages: dict[str, str]  # package -> version
    stated: str | None = None  # by the module's own files

    @property
    def version(self) -> str:
        """The newest version among the packages; of a module that was only unpacked, what its files state."""
        return max(self.packages.values(), key=release, default=self.stated or "unknown version")


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
            flavours.append(TensorRTFacts(module, where, parts, stated_version(Path(where)) if where else None))
    return tuple(flavours)


def stated_version(folder: Path) -> str | None:
    """What the `__init__.py` of TensorRT's module, or of the bindings beside it, gives as `__version__`."""
    for file in (folder / "__init__.py", folder.with_name(f"{folder.name}_bindings") / "__init__.py"):
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        if found := re.search(r"""^__version__ = (['"])(\d[^'"]*)\1""", text, re.MULTILINE):
            return found[2]
    return None


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
