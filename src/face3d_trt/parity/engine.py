"""The plan itself as a candidate, where a GPU can run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from face3d_trt.engine.flavour import find_flavour
from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.errors import MissingError
from face3d_trt.parity.runners import Candidate

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.records import Manifest


def engine_candidate(plan: Path, manifest: Manifest) -> Candidate | str:
    """The plan as a candidate, or the plain reason why it is not run here.

    A plan runs with the TensorRT of the version that built it. Plans of TensorRT-RTX are not run: that runtime compiles
    the kernels on the machine first, which this comparison has not been tried with.

    Raises:
        PlanError: TensorRT cannot read the plan although it should.
    """
    gpus = visible_gpus()
    if not gpus:
        return "this machine has no GPU"
    if manifest.flavour != "tensorrt":
        return "it is a plan of TensorRT-RTX, which compare does not run"
    try:
        flavour = find_flavour()
    except MissingError as error:
        return error.problem
    built = f"it was built with TensorRT {manifest.flavour_version}"
    if (flavour.name, flavour.version) != (manifest.flavour, manifest.flavour_version):
        return f"{built}, and this machine has {flavour}"
    if manifest.gpu is not None and manifest.gpu.compute_capability != gpus[0].compute_capability:
        here = f"{gpus[0].name} ({gpus[0].compute_capability})"
        return f"{built} for {manifest.gpu.name} ({manifest.gpu.compute_capability}), and this machine has {here}"
    runners = flavour.runners(plan.read_bytes())
    return Candidate("tensorrt", f"{flavour}, the plan", manifest.precision, runners, on_host=False)
