"""The worst pictures of a comparison: what the network saw, what it should have said, and what it said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.names import COEFFS
from face3d_trt.parity.strain import row_strain, strain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from face3d_trt.parity.batches import Batch
    from face3d_trt.parity.gather import FaceErrors, Gatherer
    from face3d_trt.parity.truth import Truths
    from face3d_trt.parity.verdict import MeaningRow, Row

Array = npt.NDArray[Any]
EXHIBITS = 4
CANDIDATES = ("tensorrt", "onnxruntime-typed", "onnxruntime-fp32")  # what says most of a plan comes first
FALLBACK = ("shape_mean", "vertex_mean", "mesh_mean")  # what ranks pictures where nothing has a limit


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One picture, and one candidate's answer.

    Attributes:
        candidate: As in `verdict.Row`.
        image: The picture's name.
        crop: (height, width, 3) uint8 RGB, as it was fed.
        measure: What is worst about it against its limit, a key of MEASURES, or an output with its group.
        strain: How much of that limit it uses; None: nothing is limited.
        batch: At which the answer was given; None: it was not kept.
        values: Of the picture's worst batch, by measure.
        reference: (257,) coefficients; None: not kept, since there is no morphable model.
        answer: The candidate's, likewise.
    """

    candidate: str
    image: str
    crop: npt.NDArray[np.uint8]
    measure: str
    strain: float | None
    batch: Batch | None
    values: Mapping[str, float]
    reference: Array | None
    answer: Array | None


def judged(rows: Sequence[Row]) -> str | None:
    """The candidate that a verdict is about: the plan where it gave figures, else its typed graph; None: no figures."""
    known = {row.candidate for row in rows}
    return next((name for name in CANDIDATES if name in known), None)


def choose_exhibits(
    truths: Truths,
    gatherer: Gatherer,
    faces: Sequence[FaceErrors],
    meaning: Sequence[MeaningRow],
    rows: Sequence[Row],
) -> tuple[Exhibit, ...]:
    """The pictures that use most of their limits, the worst first, of the last candidate that gave figures.

    Args:
        truths: The pictures, and what is right.
        gatherer: Has the answers.
        faces: Errors by candidate and picture.
        meaning: Their sums, with the limits.
        rows: Figures by output and group; they rank the pictures where there are no errors of faces.
    """
    candidate = judged(rows)
    if candidate is None:
        return ()
    own = [face for face in faces if face.candidate == candidate]
    if not own:
        return _by_rows(truths, [row for row in rows if row.candidate == candidate])
    allowed = {
        row.measure: row.allowed_worst
        for row in meaning
        if row.candidate == candidate and row.gated and row.allowed_worst is not None
    }
    ranked = sorted(((_rank(face, allowed), face) for face in own), key=lambda pair: -pair[0][0])
    return tuple(
        _exhibit(truths, gatherer, face, measure, used if allowed else None)
        for (used, measure), face in ranked[:EXHIBITS]
    )


def _rank(face: FaceErrors, allowed: Mapping[str, float]) -> tuple[float, str]:
    """How bad, and in which measure."""
    used = {name: strain(name, face.worst[name].value, limit) for name, limit in allowed.items() if name in face.worst}
    if used:
        measure = max(used, key=lambda name: used[name])
        return used[measure], measure
    measure = next((name for name in FALLBACK if name in face.worst), next(iter(face.worst)))
    return face.worst[measure].value, measure


def _exhibit(truths: Truths, gatherer: Gatherer, face: FaceErrors, measure: str, used: float | None) -> Exhibit:
    index, batch = truths.names.index(face.image), face.worst[measure].batch
    truth = truths.at(batch.height, batch.width)
    answer = gatherer.answer(face.candidate, index, batch)
    return Exhibit(
        candidate=face.candidate,
        image=face.image,
        crop=truth.crops[index],
        measure=measure,
        strain=used,
        batch=batch,
        values={name: worst.value for name, worst in face.worst.items()},
        reference=truth.outputs[COEFFS][index] if answer is not None else None,
        answer=answer,
    )


def _by_rows(truths: Truths, rows: Sequence[Row]) -> tuple[Exhibit, ...]:
    """Without a morphable model: the pictures named as the worst of an output or group."""
    worst: dict[str, tuple[float, Row]] = {}
    for row in rows:
        used = row_strain(row)
        badness = row.worst if used is None else used
        if row.worst_image not in worst or badness > worst[row.worst_image][0]:
            worst[row.worst_image] = (badness, row)
    ranked = sorted(worst.items(), key=lambda item: -item[1][0])[:EXHIBITS]
    return tuple(
        Exhibit(
            candidate=row.candidate,
            image=image,
            crop=truths.at(row.height, row.width).crops[truths.names.index(image)],
            measure=row.label,
            strain=row_strain(row),
            batch=None,
            values={},
            reference=None,
            answer=None,
        )
        for image, (_, row) in ranked
        if image in truths.names
    )
