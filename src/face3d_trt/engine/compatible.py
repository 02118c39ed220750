"""Which plans a TensorRT can run on which GPU: NVIDIA's rules, from the manifest alone.

* Version: the one that built the plan. A version-compatible plan carries the runtime of its builder and runs with
  later versions too; which ones, flavour.py knows.
* GPU: the compute capability that the plan was built on, other models of it included. A hardware-compatible plan runs
  on every GPU of Ampere (8.0) and newer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.engine.flavour import Flavour
    from face3d_trt.records import Gpu, Manifest

AMPERE = (8, 0)


def why_not(flavour: Flavour, manifest: Manifest, gpu: Gpu | None) -> str | None:
    """Why `flavour` cannot run the plan on `gpu`; None where it can."""
    if manifest.flavour != "tensorrt":
        return "it is a plan of TensorRT-RTX"
    built = f"it was built with TensorRT {manifest.flavour_version}"
    if flavour.name != "tensorrt":
        return f"{built}, and this machine has {flavour}"
    if flavour.version != manifest.flavour_version:
        if not manifest.version_compat:
            return f"{built}, and this machine has {flavour}"
        if not flavour.loads_compatible(manifest.flavour_version):
            return f"{built} for that and later versions, and this machine has {flavour}"
    before = manifest.gpu
    if not before or not gpu:
        return None
    here = f"{gpu.name} ({gpu.compute_capability})"
    if manifest.hardware_compat:
        if numbers(gpu.compute_capability) < AMPERE:
            return f"{built} for Ampere (8.0) and newer, and this machine has {here}"
    elif before.compute_capability != gpu.compute_capability:
        return f"{built} for {before.name} ({before.compute_capability}), and this machine has {here}"
    return None


def remark(manifest: Manifest, gpu: Gpu | None) -> str | None:
    """What to know about a plan that runs on `gpu`: it was tuned on another model; None where it was not."""
    before = manifest.gpu
    if not before or not gpu or before.name == gpu.name:
        return None
    return (
        f"it was tuned on {before.name} and runs on {gpu.name}: right, but perhaps slower than a plan built here "
        f"(TensorRT warns of it too)"
    )


def numbers(version: str) -> tuple[int, ...]:
    """Of a version, as (8, 6, 1) of "8.6.1.post1"."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()
