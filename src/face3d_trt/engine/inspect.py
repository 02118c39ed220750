"""A plan described on any machine: what its manifest says, whether its bytes are those, whether it runs here."""

from __future__ import annotations

import importlib.util
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from face3d_trt.engine.flavour import Flavour, find_flavour
from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.engine.shares import Shares, shares
from face3d_trt.errors import MissingError, PlanError
from face3d_trt.files import sha256_file
from face3d_trt.optional import install_command
from face3d_trt.records import Gpu, Manifest, is_sealed, manifest_path
from face3d_trt.runtime.plans import open_plan


@dataclass(frozen=True)
class Here:
    """Whether a plan runs on this machine.

    Args:
        runs: It does.
        why: With what, or why not.
        run: The command that mends it, or what can be done instead.
    """

    runs: bool
    why: str
    run: str | None = None


@dataclass(frozen=True)
class Inspection:
    """What `face3d-trt inspect` says.

    Args:
        plan: The file.
        manifest: What build wrote about it; None: there is none that can be read.
        trouble: Why the file is not to be trusted; None where it is sound.
        here: Whether it runs here; None where nothing is known about the plan.
        typed: The typed graph that it was built from: "as built", "replaced" by another, or "missing", as it may be;
            None where nothing is known about the plan.
        sealed: Whether the manifest has a digest by which an edit would show.
    """

    plan: Path
    manifest: Manifest | None
    trouble: PlanError | None
    here: Here | None
    typed: Literal["as built", "replaced", "missing"] | None = None
    sealed: bool = True

    @property
    def shares(self) -> Shares | None:
        """Of the finished engine's layers; None where the manifest lists none."""
        listed = self.manifest.engine_layers if self.manifest else ()
        return shares(listed) if listed else None

    def facts(self) -> dict[str, Any]:
        """Everything, for JSON."""
        trouble, here, found = self.trouble, self.here, self.shares
        return {
            "plan": str(self.plan),
            "sound": trouble is None,
            "trouble": trouble and {"problem": trouble.problem, "allowed": trouble.allowed, "run": trouble.run},
            "here": here and {"runs": here.runs, "why": here.why, "run": here.run},
            "typed": self.typed,
            "sealed": self.sealed,
            "shares": found and {"layers": found.layers, "time": found.time, "convolutions": found.convolutions},
            "manifest": self.manifest and self.manifest.model_dump(mode="json"),
        }


def inspect_plan(plan: Path) -> Inspection:
    """Look at `plan` and at its manifest. Nothing is deserialised, and no package beyond this one's is needed."""
    trouble: PlanError | None = None
    manifest: Manifest | None
    try:
        manifest, _ = open_plan(plan)
    except PlanError as error:
        trouble, manifest = error, _manifest_alone(plan)
    if manifest is None:
        return Inspection(plan, None, trouble, None)
    sealed = is_sealed(manifest_path(plan))
    return Inspection(plan, manifest, trouble, runs_here(manifest, plan), _typed(manifest, plan), sealed)


def runs_here(manifest: Manifest, plan: Path) -> Here:
    """Whether a plan that was built so runs on one of this machine's GPUs, with the TensorRT that is here."""
    gpus = visible_gpus()
    if not gpus:
        instead = f"face3d-trt compare --plan {shlex.quote(str(plan))}    # its typed graph, in ONNX Runtime"
        return Here(False, f"this machine has no NVIDIA GPU; the plan wants {wanted(manifest)}", instead)
    if manifest.flavour == "tensorrt_rtx":
        return _rtx_here(manifest, gpus[0])
    try:
        flavour = find_flavour()
    except MissingError as error:
        return Here(False, f"{error.problem}; the plan wants {wanted(manifest)}", error.run)
    reasons = [flavour.can_run(manifest, gpu) for gpu in gpus]
    if None not in reasons:
        again = f"{manifest.command}    # on this machine"
        cure = again if flavour.name == manifest.flavour else install_command("gpu")
        return Here(False, f"{reasons[0]}; the plan wants {wanted(manifest)}", cure)
    index = reasons.index(None)
    return _runs(manifest, flavour, gpus[index], index)


def _runs(manifest: Manifest, flavour: Flavour, gpu: Gpu, index: int) -> Here:
    on = f"TensorRT {flavour.version} on {gpu.name} ({gpu.compute_capability})"
    if importlib.util.find_spec("pycuda") is None:
        return Here(False, f"{on} takes it, but pycuda is missing, through which engines run", install_command("gpu"))
    remark = flavour.remark(manifest, gpu)
    return Here(True, f"with {on}" + (f", device {index}" if index else "") + (f"; {remark}" if remark else ""))


def wanted(manifest: Manifest) -> str:
    """What a machine must have to run the plan, in words."""
    if manifest.flavour == "tensorrt_rtx":
        return f"TensorRT-RTX {manifest.flavour_version} and compute capability {', '.join(manifest.targets)}"
    gpu = manifest.gpu
    where = f"{gpu.name} (compute capability {gpu.compute_capability})" if gpu else "an NVIDIA GPU"
    if manifest.hardware_compat:
        where = "a GPU of Ampere or newer"
    newer = " or a later one of the same major version" if manifest.version_compat else ""
    return f"TensorRT {manifest.flavour_version}{newer} and {where}"


def _rtx_here(manifest: Manifest, gpu: Gpu) -> Here:
    """TensorRT-RTX compiles a plan's kernels for the GPU as it loads it, which this package leaves to others."""
    fits = gpu.compute_capability in manifest.targets
    there = f"{gpu.name} ({gpu.compute_capability})"
    why = (
        f"it is a plan of TensorRT-RTX and fits {there}, but runs in that one's own runtime only, not in this package's"
        if fits
        else f"it is a plan of TensorRT-RTX for compute capability {', '.join(manifest.targets)}, and this is {there}"
    )
    return Here(False, why, f"{install_command('gpu')}    # then the build above once more, without --target")


def _typed(manifest: Manifest, plan: Path) -> Literal["as built", "replaced", "missing"]:
    path = plan.parent / manifest.typed
    if not path.is_file():
        return "missing"
    try:
        return "as built" if sha256_file(path) == manifest.typed_sha256 else "replaced"
    except OSError:  # it may not be read
        return "missing"


def _manifest_alone(plan: Path) -> Manifest | None:
    try:
        return Manifest.read(manifest_path(plan))
    except PlanError:
        return None
