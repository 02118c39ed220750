"""Errors by meaning: per output and coefficient group, measured against how much pictures differ from each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from face3d_trt.names import COEFFS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Array = npt.NDArray[Any]

ROWS_AT_ONCE = 32  # a mesh row is 107,127 doubles: larger pieces would cost hundreds of MB
STILL = 1e-6  # variation below this share of the magnitude is float32 noise, not a difference between pictures


def parts(output: str) -> Iterator[tuple[str | None, slice]]:
    """What is measured of an output: the whole, then, for the coefficients, each group as (name, columns)."""
    yield None, slice(None)
    if output == COEFFS:
        yield from GROUPS.items()


@dataclass(frozen=True)
class Scale:
    """What an error is divided by: root mean square, over pictures, of the norm of something.

    Attributes:
        value: The divisor, above zero.
        kind: "variation": of the reference minus its mean over the pictures. "magnitude": of the reference itself,
            because pictures do not differ in it. "unit": 1, because the reference is zero for every picture.
        pictures: How many pictures gave it.
    """

    value: float
    kind: Literal["variation", "magnitude", "unit"]
    pictures: int


def scale(reference: Array) -> Scale:
    """The scale of one output or group.

    Args:
        reference: Float32 reference over distinct pictures, (pictures, ...).

    Returns:
        The variation between pictures; where there is none, the magnitude, so that nothing is divided by zero.
    """
    rows = reference.reshape(len(reference), -1).astype(np.float64)
    magnitude = math.sqrt(np.square(rows).sum(axis=1).mean())
    if not math.isfinite(magnitude) or magnitude == 0:
        return Scale(1.0, "unit", len(rows))
    variation = math.sqrt(np.square(rows - rows.mean(axis=0)).sum(axis=1).mean())
    if variation <= STILL * magnitude:
        return Scale(magnitude, "magnitude", len(rows))
    return Scale(variation, "variation", len(rows))


@dataclass(frozen=True)
class Figures:
    """The error of one candidate in one output or group at one batch size, over all rows of all feeds.

    Attributes:
        max_abs: Largest absolute error, in the output's unit; inf when a value is not finite.
        mean_abs: Mean absolute error, in the output's unit.
        relative: Root mean square over rows of the row's error norm, divided by the scale. With as many rows as
            pictures this is norm of the error over norm of the variation between pictures.
        cosine: Cosine between all candidate rows and all reference rows, each laid out as one vector.
        worst: The largest error norm of one row, divided by the scale.
        worst_row: That row's index in its batch.
        worst_image: The name of the picture in that row.
        nan: How many values are NaN.
        inf: How many values are infinite.
        rows: How many rows were compared.
    """

    max_abs: float
    mean_abs: float
    relative: float
    cosine: float
    worst: float
    worst_row: int
    worst_image: str
    nan: int
    inf: int
    rows: int


@dataclass
class ErrorSums:
    """Running sums, so that memory does not grow with the number of batches."""

    scale: Scale
    rows: int = 0
    values: int = 0
    max_abs: float = 0.0
    sum_abs: float = 0.0
    sum_square: float = 0.0
    dot: float = 0.0
    reference_square: float = 0.0
    candidate_square: float = 0.0
    nan: int = 0
    inf: int = 0
    worst: float = -1.0
    worst_at: tuple[int, str] = field(default=(0, ""))

    def add(self, reference: Array, candidate: Array, images: Sequence[str]) -> None:
        """Add the rows of one batch.

        Args:
            reference: (batch, ...) float.
            candidate: Same shape.
            images: The picture in each row.
        """
        for start in range(0, len(reference), ROWS_AT_ONCE):
            piece = slice(start, start + ROWS_AT_ONCE)
            self._add(start, reference[piece], candidate[piece], images[piece])

    def _add(self, start: int, reference: Array, candidate: Array, images: Sequence[str]) -> None:
        r = reference.reshape(len(reference), -1).astype(np.float64)
        c = candidate.reshape(len(candidate), -1).astype(np.float64)
        self.nan += int(np.isnan(c).sum())
        self.inf += int(np.isinf(c).sum())
        with np.errstate(invalid="ignore"):
            error = np.abs(c - r)
        error[~np.isfinite(error)] = np.inf
        norms = np.sqrt(np.square(error).sum(axis=1))
        at = int(norms.argmax())
        if norms[at] > self.worst:
            self.worst, self.worst_at = float(norms[at]), (start + at, images[at])
        self.rows += len(r)
        self.values += r.size
        self.max_abs = max(self.max_abs, float(error.max()))
        self.sum_abs += float(error.sum())
        self.sum_square += float(np.square(norms).sum())
        r, c = np.where(np.isfinite(r), r, 0), np.where(np.isfinite(c), c, 0)
        self.dot += float((r * c).sum())
        self.reference_square += float(np.square(r).sum())
        self.candidate_square += float(np.square(c).sum())

    def figures(self) -> Figures:
        """What the sums amount to."""
        return Figures(
            max_abs=self.max_abs,
            mean_abs=self.sum_abs / self.values,
            relative=math.sqrt(self.sum_square / self.rows) / self.scale.value,
            cosine=self._cosine(),
            worst=self.worst / self.scale.value,
            worst_row=self.worst_at[0],
            worst_image=self.worst_at[1],
            nan=self.nan,
            inf=self.inf,
            rows=self.rows,
        )

    def _cosine(self) -> float:
        if self.nan or self.inf:
            return math.nan
        norms = math.sqrt(self.reference_square) * math.sqrt(self.candidate_square)
        if norms == 0:  # two zero vectors agree; a zero and a non-zero one have no angle
            return 1.0 if self.reference_square == self.candidate_square else 0.0
        return self.dot / norms
