"""Sum up over pictures what errors mean for each face, and hold that against the limits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.parity.limits import Limits, MeaningLimit
from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.verdict import FaceRow, Failure, MeaningRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from face3d_trt.parity.gather import FaceErrors, Worst
    from face3d_trt.records import Precision

SHARE = 95  # per cent of the pictures
ENOUGH = 20  # pictures of which 5 % are at least one; with fewer, median and worst decide
UNLIMITED = MeaningLimit()


def judge_faces(
    faces: Sequence[FaceErrors],
    precisions: Mapping[str, Precision],
    titles: Mapping[str, str],
    limits: Limits,
    ungated: frozenset[Precision] = frozenset(),
) -> tuple[list[MeaningRow], list[Failure]]:
    """A row for each candidate and measure, and a failure for each that does not keep its limits.

    Args:
        faces: What was found, by candidate and picture.
        precisions: Of each candidate: whose limits it must keep.
        titles: Of each candidate, for the sentences.
        limits: All limits.
        ungated: Precisions whose figures are only shown.
    """
    rows: list[MeaningRow] = []
    failures: list[Failure] = []
    for candidate in dict.fromkeys(face.candidate for face in faces):
        own = [face for face in faces if face.candidate == candidate]
        precision = precisions[candidate]
        allowed = limits.of(precision).meaning
        for name in MEASURES:
            found = {face.image: face.worst[name] for face in own if name in face.worst}
            if not found:
                continue
            row = _row(candidate, precision, name, found, allowed.get(name, UNLIMITED), precision not in ungated)
            failure = _failure(row, titles[candidate])
            if failure is not None:
                failures.append(failure)
            rows.append(dataclasses.replace(row, passed=failure is None))
    return rows, failures


def face_rows(faces: Sequence[FaceErrors]) -> tuple[FaceRow, ...]:
    """The same for every picture, for the verdict."""
    return tuple(
        FaceRow(face.candidate, face.image, {name: face.worst[name].value for name in MEASURES if name in face.worst})
        for face in faces
    )


def _row(
    candidate: str,
    precision: Precision,
    name: str,
    found: Mapping[str, Worst],
    allowed: MeaningLimit,
    gated: bool,
) -> MeaningRow:
    measure = MEASURES[name]
    values = np.array([worst.value for worst in found.values()])
    low = measure.better == "low"
    image = list(found)[int(values.argmax() if low else values.argmin())]
    return MeaningRow(
        candidate=candidate,
        precision=precision,
        measure=name,
        unit=measure.unit,
        better=measure.better,
        median=_percentile(values, 50, low),
        p95=_percentile(values, SHARE, low),
        worst=found[image].value,
        worst_image=image,
        worst_batch=found[image].batch.size,
        worst_profile=found[image].batch.profile,
        pictures=len(values),
        allowed_median=allowed.median,
        allowed_p95=allowed.p95 if len(values) >= ENOUGH else None,
        allowed_worst=allowed.worst,
        gated=gated and allowed != UNLIMITED,
        passed=True,
    )


def _percentile(values: np.ndarray, share: float, low: bool) -> float:
    """The value that `share` % of the pictures keep. One that is infinite stays so: nothing is interpolated to NaN."""
    method = "linear" if np.isfinite(values).all() else ("higher" if low else "lower")
    return float(np.percentile(values, share if low else 100 - share, method=method))  # type: ignore[call-overload]


def _failure(row: MeaningRow, title: str) -> Failure | None:
    measure = MEASURES[row.measure]
    sign, more = (1, "more") if row.better == "low" else (-1, "less")
    worst = f"worst: {row.worst_image} at batch {row.worst_batch}, profile {row.worst_profile}"
    checks = (
        (row.worst, row.allowed_worst, "is {} in one picture"),
        (row.p95, row.allowed_p95, f"is {{}} or {more} in 5 % of the pictures"),
        (row.median, row.allowed_median, f"is {{}} or {more} in half of the pictures"),
    )
    for value, allowed, text in checks:
        if not row.gated or allowed is None or sign * value <= sign * allowed:
            continue
        unit = f" {measure.unit}" if measure.unit else ""
        said = text.format(f"{value:.4g}{unit}")
        return Failure(
            kind="meaning",
            text=f"{measure.title}: {title} {said}, allowed {allowed:g}{unit}; {worst}",
            candidate=row.candidate,
            output="meaning",
            group=row.measure,
            batch=row.worst_batch,
            image=row.worst_image,
            measured=value,
            allowed=allowed,
        )
    return None
