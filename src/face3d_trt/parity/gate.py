"""Hold the figures against the limits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from face3d_trt.parity.limits import Limits, limit_key
from face3d_trt.parity.verdict import Failure, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from face3d_trt.parity.measure import Broken, Measured, Measurement
    from face3d_trt.parity.truth import Key
    from face3d_trt.records import Precision

OF_WHAT = {
    "variation": "of the variation between pictures",
    "magnitude": "of its size (pictures do not differ in it)",
    "unit": "in absolute terms, in per cent of 1 (the reference is zero)",
}


def judge(
    measured: Sequence[Measured],
    precisions: Mapping[str, Precision],
    titles: Mapping[str, str],
    limits: Limits,
    ungated: frozenset[Precision] = frozenset(),
) -> tuple[list[Row], list[Failure]]:
    """Rows with their limits, and a failure for each row that keeps them not.

    Args:
        measured: The figures.
        precisions: Of each candidate: whose limits it must keep.
        titles: Of each candidate, for the sentences.
        limits: All limits.
        ungated: Precisions whose figures are only shown; NaN and Inf fail all the same.
    """
    rows: list[Row] = []
    failures: list[Failure] = []
    for entry in measured:
        precision = precisions[entry.candidate]
        row = _row(entry, precision, limits, gated=precision not in ungated)
        failure = _failure(row, titles[entry.candidate])
        if failure is not None:
            failures.append(failure)
        rows.append(_with_verdict(row, failure is None))
    return rows, failures


def broken_failures(broken: Sequence[Broken], titles: Mapping[str, str]) -> list[Failure]:
    """A failure for each batch that a candidate could not run or answered with other outputs."""
    return [
        Failure(
            kind="error",
            text=f"{titles[entry.candidate]} cannot be compared at batch {entry.batch.label}: {entry.problem}",
            candidate=entry.candidate,
            output=entry.output,
            batch=entry.batch.size,
        )
        for entry in broken
    ]


def unrun_failures(found: Measurement, titles: Mapping[str, str]) -> list[Failure]:
    """A failure for each candidate that no batch was left for: nothing is known of it."""
    seen = {entry.candidate for entry in found.measured} | {entry.candidate for entry in found.broken}
    return [
        Failure(
            kind="error",
            text=f"{title} was not compared at all: every batch is too large for this machine's memory",
            candidate=name,
        )
        for name, title in titles.items()
        if name not in seen
    ]


def reference_failures(diseased: Mapping[Key, int]) -> list[Failure]:
    """A failure for each output or group in which the reference itself is not finite."""
    return [
        Failure(
            kind="non-finite",
            text=f"{limit_key(output, group)}: float32 PyTorch itself gives {count} values that are NaN or Inf",
            candidate="pytorch",
            output=output,
            group=group,
            measured=float(count),
            allowed=0.0,
        )
        for (output, group), count in diseased.items()
    ]


def _row(entry: Measured, precision: Precision, limits: Limits, gated: bool) -> Row:
    key, allowed, figures = limit_key(entry.output, entry.group), limits.of(precision), entry.figures
    return Row(
        candidate=entry.candidate,
        precision=precision,
        profile=entry.batch.profile,
        batch=entry.batch.size,
        height=entry.batch.height,
        width=entry.batch.width,
        output=entry.output,
        group=entry.group,
        max_abs=figures.max_abs,
        mean_abs=figures.mean_abs,
        relative=figures.relative,
        worst=figures.worst,
        worst_row=figures.worst_row,
        worst_image=figures.worst_image,
        cosine=figures.cosine,
        nan=figures.nan,
        inf=figures.inf,
        rows=figures.rows,
        scale=entry.scale.value,
        scale_kind=entry.scale.kind,
        allowed_relative=allowed.of("relative", key),
        allowed_worst=allowed.of("row", key),
        allowed_cosine=allowed.of("cosine", key),
        gated=gated,
        passed=True,
    )


def _with_verdict(row: Row, passed: bool) -> Row:
    return dataclasses.replace(row, passed=passed)


def _failure(row: Row, title: str) -> Failure | None:
    """The most telling failure of a row: not finite, then the batch, then one row of it, then the angle."""
    where = f"{row.label}: {title} at batch {row.batch}, profile {row.profile}"
    worst = f"worst: row {row.worst_row}, {row.worst_image}"
    of_what = OF_WHAT[row.scale_kind]

    def fail(kind: str, text: str, measured: float, allowed: float) -> Failure:
        return Failure(
            kind=kind,  # type: ignore[arg-type]
            text=f"{where}, {text}; {worst}",
            candidate=row.candidate,
            output=row.output,
            group=row.group,
            batch=row.batch,
            image=row.worst_image,
            measured=measured,
            allowed=allowed,
        )

    if row.nan or row.inf:
        return fail("non-finite", f"gives {row.nan} NaN and {row.inf} Inf", float(row.nan + row.inf), 0.0)
    if not row.gated:
        return None
    if not row.relative <= row.allowed_relative:
        text = f"differs by {row.relative:.3%} {of_what}, allowed {row.allowed_relative:.3%}"
        return fail("relative", text, row.relative, row.allowed_relative)
    if not row.worst <= row.allowed_worst:
        text = f"differs in one row by {row.worst:.3%} {of_what}, allowed {row.allowed_worst:.3%}"
        return fail("row", text, row.worst, row.allowed_worst)
    if not row.cosine >= row.allowed_cosine:
        return fail(
            "cosine", f"has cosine {row.cosine:.6f}, allowed {row.allowed_cosine}", row.cosine, row.allowed_cosine
        )
    return None
