"""How far a backend's coefficients are from float32: a benchmark must not time a wrong answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.faces.tensor import to_input
from face3d_trt.names import GROUPS
from face3d_trt.parity.batches import resize
from face3d_trt.parity.metrics import scale

if TYPE_CHECKING:
    from face3d_trt.bench.backend import Case, Ready
    from face3d_trt.faces.images import Pixels
    from face3d_trt.runtime.interface import HostArray

MOST = 32  # pictures


@dataclass(frozen=True, eq=False)
class Truth:
    """What is right for some pictures.

    Attributes:
        crops: (N, height, width, 3) uint8 RGB.
        coeffs: (N, 257) float32.
        origin: Who said so, for people.
    """

    crops: Pixels
    coeffs: HostArray
    origin: str

    def fits(self, height: int, width: int) -> bool:
        """Whether it is of this size."""
        return self.crops.shape[1:3] == (height, width)


def pictures(height: int, width: int) -> Pixels:
    """The package's samples at a size: (8, height, width, 3) uint8 RGB."""
    from face3d_trt.faces.samples import sample_crops

    return resize(sample_crops(), height, width)


def error_of(ready: Ready, case: Case, truth: Truth | None) -> float | None:
    """The worst coefficient group's error; None where the truth is not known.

    Args:
        ready: The backend.
        case: What it is ready for; pictures go in in batches of its size, the last one filled up with the first.
        truth: Of the case's size.
    """
    if truth is None or not truth.fits(case.height, case.width):
        return None
    count = len(truth.crops)
    rows = np.arange(-(-count // case.batch) * case.batch) % count
    found = [
        np.array(ready.coeffs(to_input(truth.crops[rows[start : start + case.batch]], case.input)), np.float32)
        for start in range(0, len(rows), case.batch)
    ]
    return relative_error(truth.coeffs, np.concatenate(found)[:count])


def relative_error(reference: HostArray, coeffs: HostArray) -> float:
    """Largest over the coefficient groups: norm of the error over the norm of the variation between pictures.

    Args:
        reference: (N, 257) float32.
        coeffs: (N, 257); infinite where a value is not finite.
    """
    if not np.isfinite(coeffs).all():
        return float("inf")
    errors = []
    for columns in GROUPS.values():
        difference = coeffs[:, columns].astype(np.float64) - reference[:, columns]
        rms = float(np.sqrt(np.square(difference).sum(axis=1).mean()))
        errors.append(rms / scale(reference[:, columns]).value)
    return max(errors)
