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

    Raises:
        PlanError: TensorRT cannot read the plan although it should.
    """
    return bytes_candidate(plan.read_bytes(), manifest)


def bytes_candidate(plan: bytes, manifest: Manifest) -> Candidate | str:
    """The same for a plan that is in no file yet."""
    if not visible_gpus():
        return "this machine has no GPU"
    try:
        flavour = find_flavour()
    except MissingError as error:
        return error.problem
    if reason := flavour.can_run(manifest):
        return reason
    runners = flavour.runners(plan, host_code=manifest.version_compat)
    return Candidate("tensorrt", f"{flavour}, the plan", manifest.precision, runners, on_host=False)
