"""Whose figures these are: versions, hashes, where things come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.engine.sizes import format_size
from face3d_trt.errors import PlanError
from face3d_trt.records import Manifest, manifest_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from face3d_trt.parity.verdict import Verdict


@dataclass(frozen=True)
class Fact:
    """A name and its value; `code` where the value is to be read letter by letter."""

    name: str
    value: str
    code: bool = False


def facts_of(verdict: Verdict) -> tuple[Fact, ...]:
    """Of one plan: what the verdict says, and what its manifest says where it is still there."""
    return (*_of_plan(verdict), *_of_reference(verdict))


def _of_plan(verdict: Verdict) -> Iterator[Fact]:
    yield Fact("Plan", verdict.plan, True)
    try:
        manifest = Manifest.read(manifest_path(Path(verdict.plan)))
    except PlanError:
        return
    flavour = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT-RTX"}[manifest.flavour]
    gpu = manifest.gpu
    where = f"on {gpu.name}, driver {gpu.driver}" if gpu is not None else "without a GPU"
    targets = f", for compute capability {', '.join(manifest.targets)}" if manifest.targets else ""
    yield Fact("Built with", f"{flavour} {manifest.flavour_version} {where}{targets}, {manifest.created}")
    yield Fact("Built by", manifest.command, True)
    if manifest.plan_bytes is not None:
        yield Fact("Size", format_size(manifest.plan_bytes))
    layers = ", ".join(f"{count} {kind}" for kind, count in (manifest.inspected or manifest.layers).items())
    yield Fact(
        "Layers by type",
        layers + (f"; {manifest.int8_macs:.0%} of the multiply-adds in int8" * (manifest.int8_macs > 0)),
    )
    if manifest.calibration is not None:
        seen = manifest.calibration
        yield Fact("Calibrated on", f"{seen.images} pictures of {seen.folder}, method {seen.method}")
    yield Fact("SHA-256 of the plan", manifest.plan_sha256, True)
    yield Fact("SHA-256 of the typed ONNX", manifest.typed_sha256, True)
    yield Fact("SHA-256 of the float32 ONNX", manifest.onnx_sha256, True)


def _of_reference(verdict: Verdict) -> Iterator[Fact]:
    reference = verdict.reference
    yield Fact("Model", f"{verdict.model} ({verdict.weights} weights)")
    if reference.file is None:
        yield Fact("Reference", f"float32 PyTorch {reference.torch}, computed in this run")
    else:
        made = f"by PyTorch {reference.torch}, {reference.created}, face3d-trt {reference.version}"
        yield Fact("Reference", f"{reference.file}, {made}")
    yield Fact("SHA-256 of the checkpoint", reference.checkpoint_sha256, True)
    yield Fact("SHA-256 of the pictures", reference.inputs_sha256, True)
    if reference.sha256 is not None:
        yield Fact("SHA-256 of the reference file", reference.sha256, True)
