"""What `triton` says in the end: what is there, and what Triton needs to load it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.records import Manifest, TensorRecord
    from face3d_trt.triton.repository import Written

MATRIX = "https://docs.nvidia.com/deeplearning/frameworks/support-matrix/"
_PORTS = "-p 8000:8000 -p 8001:8001 -p 8002:8002"  # HTTP, gRPC, metrics
_IMAGE = "nvcr.io/nvidia/tritonserver:YY.MM-py3"


def described(repository: Path, written: Sequence[Written]) -> str:
    """Some lines for each model, and how the server is started."""
    lines: list[str] = []
    for each in written:
        indices = each.config.profiles
        profiles = f"profile{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"
        lines += [
            f"{each.name}, version {each.version}",
            f"  takes    {_listed(each.manifest.inputs)}",
            f"  gives    {_listed(each.manifest.outputs)}",
            f"  batches  1 to {each.config.max_batch}, {profiles}",
            f"  needs    {needs(each.manifest)}",
        ]
    compatible = any(each.manifest.version_compat for each in written)
    switch = " --backend-config=tensorrt,version-compatible=true" if compatible else ""
    mounted = f"-v {shlex.quote(str(repository.absolute()))}:/models:ro"
    server = f"tritonserver --model-repository=/models{switch}"
    lines.append(f"which container has which TensorRT: {MATRIX}")
    lines.append(f"docker run --rm --gpus all {_PORTS} {mounted} {_IMAGE} {server}")
    return "\n".join(lines)


def _listed(tensors: Sequence[TensorRecord]) -> str:
    return ", ".join(f"{each.name} {each.dtype}" for each in tensors)


def needs(manifest: Manifest) -> str:
    """Which TensorRT and which GPU load a plan."""
    later = " or later, of the same major version" if manifest.version_compat else ""
    if manifest.hardware_compat:
        gpu = "a GPU of Ampere or newer"
    elif manifest.gpu is None:
        gpu = "the GPU that it was built for"
    else:
        gpu = f"a GPU of compute capability {manifest.gpu.compute_capability} (built on {manifest.gpu.name})"
    return f"TensorRT {manifest.flavour_version}{later}; {gpu}"
