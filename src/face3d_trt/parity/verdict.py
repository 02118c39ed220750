"""What a comparison found. Also the schema of `compare --json`: `to_json` writes these dataclasses field by field."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.records import Precision, Weights

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One candidate, one batch size, one output or coefficient group.

    Attributes:
        candidate: `onnxruntime-fp32` (the exported ONNX), `onnxruntime-typed` (the ONNX the plan was built from) or
            `tensorrt` (the plan).
        precision: Whose limits apply.
        profile: Index of the optimization profile.
        batch: Rows in a batch.
        height: Of the input, in pixels.
        width: Of the input, in pixels.
        output: `coeffs`, `vertex` or `texture`.
        group: Coefficient group, or None for the whole output.
        max_abs: Largest absolute error, in the output's unit; None in JSON when a value is not finite.
        mean_abs: Mean absolute error.
        relative: Root-mean-square error of a row over `scale`.
        worst: Largest error norm of a single row over `scale`.
        worst_row: Index of that row in its batch.
        worst_image: The picture in it.
        cosine: Between all rows and the reference's, as one vector each.
        nan: Values that are NaN.
        inf: Values that are infinite.
        rows: Rows compared, over all runs at this batch size.
        scale: What errors are divided by, in the output's unit.
        scale_kind: `variation` between pictures, `magnitude` where they do not differ, `unit` where it is 0.
        allowed_relative: Limit of `relative`.
        allowed_worst: Limit of `worst`.
        allowed_cosine: Lower limit of `cosine`.
        gated: Whether the limits count; NaN and Inf always do.
        passed: Whether it is good enough.
    """

    candidate: str
    precision: Precision
    profile: int
    batch: int
    height: int
    width: int
    output: str
    group: str | None
    max_abs: float
    mean_abs: float
    relative: float
    worst: float
    worst_row: int
    worst_image: str
    cosine: float
    nan: int
    inf: int
    rows: int
    scale: float
    scale_kind: Literal["variation", "magnitude", "unit"]
    allowed_relative: float
    allowed_worst: float
    allowed_cosine: float
    gated: bool
    passed: bool

    @property
    def label(self) -> str:
        """`coeffs identity`."""
        return self.output if self.group is None else f"{self.output} {self.group}"


@dataclass(frozen=True)
class Failure:
    """One reason why the gate failed.

    Attributes:
        kind: `integrity` (a file is not the one that was built from), `error` (a candidate could not run, or gave other
            outputs), `non-finite`, `relative`, `row` or `cosine`.
        text: The whole sentence.
        candidate: As in Row; None for integrity.
        output: As in Row.
        group: As in Row.
        batch: As in Row.
        image: The worst picture.
        measured: What was found.
        allowed: What would have been good enough.
    """

    kind: Literal["integrity", "error", "non-finite", "relative", "row", "cosine"]
    text: str
    candidate: str | None = None
    output: str | None = None
    group: str | None = None
    batch: int | None = None
    image: str | None = None
    measured: float | None = None
    allowed: float | None = None


@dataclass(frozen=True)
class Check:
    """Whether a file is still the one that the manifest speaks of.

    Attributes:
        name: `plan`, `typed ONNX`, `float32 ONNX`, `checkpoint` or `precision`.
        passed: Whether its SHA-256, or its precision, is the manifest's.
        text: The sentence about it.
    """

    name: str
    passed: bool
    text: str


@dataclass(frozen=True)
class ReferenceSource:
    """Where the reference's outputs come from.

    Attributes:
        file: The file of `compare --save-reference`; None: computed in this run.
        sha256: Of that file's content.
        checkpoint_sha256: Of the model's pytorch_model.pt.
        inputs_sha256: Of the pictures, (N, 224, 224, 3) uint8, in their order.
        torch: Version of PyTorch.
        created: When, ISO 8601, UTC; None: in this run.
        version: Of the face3d-trt that computed it.
    """

    file: str | None
    sha256: str | None
    checkpoint_sha256: str
    inputs_sha256: str
    torch: str
    created: str | None
    version: str


@dataclass(frozen=True)
class Verdict:
    """All about one plan.

    Attributes:
        plan: Path of the plan.
        precision: That was asked for.
        model: The directory or id of the reference.
        reference: Where its outputs come from.
        weights: `seeded`, `learned` or `checkpoint`.
        engine_ran: Whether the plan itself was run; if not, the verdict is of the typed ONNX.
        candidates: Name to title, in the order they ran.
        batches: `1, 8, 31, 32 at 224x224 (profile 0)` and so on.
        pictures: Names of the pictures.
        skipped: Pictures that could not be used, with the reason.
        origin: Where the pictures come from.
        checks: Integrity of the files.
        rows: All figures.
        failures: Empty when the gate passed.
        notes: What a reader must know to understand the figures.
        version: Of face3d-trt.
    """

    plan: str
    precision: Precision
    model: str
    reference: ReferenceSource
    weights: Weights
    engine_ran: bool
    candidates: dict[str, str]
    batches: tuple[str, ...]
    pictures: tuple[str, ...]
    skipped: tuple[str, ...]
    origin: str
    checks: tuple[Check, ...]
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    version: str

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failures


def to_json(verdicts: Sequence[Verdict]) -> str:
    """`{"schema_version": 1, "passed": …, "verdicts": [{"passed": …, …}]}`; numbers that are not finite become null."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "passed": all(verdict.passed for verdict in verdicts),
        "verdicts": [{"passed": verdict.passed, **dataclasses.asdict(verdict)} for verdict in verdicts],
    }
    return json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
