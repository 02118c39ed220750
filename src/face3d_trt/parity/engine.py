"""The plan itself as a candidate, where a GPU can run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.parity.runners import Candidate
    from face3d_trt.records import Manifest


def engine_candidate(plan: Path, manifest: Manifest) -> Candidate | str:
    """The plan as a candidate, or the plain reason why it is not run here.

    Args:
        plan: The plan file.
        manifest: Of the plan.
    """
    return "no GPU"
