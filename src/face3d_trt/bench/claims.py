"""What articles about this model claim, beside what was measured here: as ratios, because machines differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from face3d_trt.bench.ratios import FLOAT32

if TYPE_CHECKING:
    from face3d_trt.bench.records import Mode, Row

AMP = "torch-amp"
Quantity = Literal["time", "memory", "utilization"]
_MODES: tuple[Mode, ...] = ("engine", "host")
MODE_NAMES = {"engine": "engine only", "host": "host to host"}


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        text: What it says, without figures.
        quantity: Time of one call, GPU memory, or the share of time that the GPU is busy.
        before: Theirs, of float32 PyTorch: ms, GB or share.
        after: Theirs, of what is claimed to be better.
        batches: At which ours is looked up; (): they name none, and ours is shown for batch 1 and the largest.
        ours: Whether a row is of the "after" side.
    """

    text: str
    quantity: Quantity
    before: float
    after: float
    batches: tuple[int, ...]
    ours: Callable[[Row], bool]

    @property
    def ratio(self) -> float:
        """Times as fast, as small, or as busy."""
        return self.after / self.before if self.quantity == "utilization" else self.before / self.after


def _amp(row: Row) -> bool:
    return row.backend == AMP


def _trt_fp16(row: Row) -> bool:
    return row.backend.startswith("trt") and row.arithmetic == "fp16"


CLAIMS = (
    Claim("AMP against FP32, time", "time", 450, 280, (), _amp),
    Claim("AMP against FP32, memory", "memory", 8.2, 4.5, (), _amp),
    # 120 ms beside 450 ms: 3.75 times, which the articles round to four.
    Claim("TensorRT FP16 against PyTorch FP32, time", "time", 450, 120, (1, 4), _trt_fp16),
    Claim("TensorRT FP16 against FP32, memory, batch 1", "memory", 3.8, 2.1, (1,), _trt_fp16),
    Claim("TensorRT FP16 against FP32, memory, batch 2", "memory", 6.2, 3.5, (2,), _trt_fp16),
    Claim("TensorRT FP16 against FP32, memory, batch 4", "memory", 11.1, 6.3, (4,), _trt_fp16),
    Claim("GPU utilization of a pipeline, PyTorch to TensorRT", "utilization", 0.45, 0.85, (), _trt_fp16),
)


@dataclass(frozen=True)
class Answer:
    """A claim beside one figure of ours.

    Attributes:
        claim: What is claimed.
        batch: Of ours; None: not measured at all.
        mode: Of ours.
        before: Ours, of float32 PyTorch: ms, bytes or share; None: not measured.
        after: Ours, of the other side, of the row that is best.
        row: That row.
        context: Bytes of memory that a CUDA context takes on either side, where known; only of memory.
    """

    claim: Claim
    batch: int | None = None
    mode: Mode | None = None
    before: float | None = None
    after: float | None = None
    row: Row | None = None
    context: tuple[int, int] | None = None

    @property
    def ratio(self) -> float | None:
        """As the claim's; None where a side is not measured."""
        if not self.before or not self.after:
            return None
        return self.after / self.before if self.claim.quantity == "utilization" else self.before / self.after


def answers(rows: Sequence[Row]) -> Iterator[Answer]:
    """Ours for each claim: a line for each batch and mode that both sides have, or one that says "not measured"."""
    for claim in CLAIMS:
        found = list(_answers(claim, rows))
        yield from found or [Answer(claim)]


def _answers(claim: Claim, rows: Sequence[Row]) -> Iterator[Answer]:
    modes = {"time": _MODES, "memory": _MODES[:1], "utilization": _MODES[1:]}[claim.quantity]
    for mode in modes:
        here = [row for row in rows if row.mode == mode and _value(claim, row) is not None]
        before = {row.batch: row for row in here if row.backend == FLOAT32}
        after: dict[int, Row] = {}
        for row in here:
            if claim.ours(row) and _better(claim, row, after.get(row.batch)):
                after[row.batch] = row
        both = sorted(before.keys() & after.keys())
        for batch in claim.batches or tuple(dict.fromkeys((*both[:1], *both[-1:]))):
            if batch in both:
                yield _answer(claim, mode, before[batch], after[batch])


def _answer(claim: Claim, mode: Mode, before: Row, after: Row) -> Answer:
    context = None
    if claim.quantity == "memory" and before.memory.context is not None and after.memory.context is not None:
        context = (before.memory.context, after.memory.context)
    return Answer(claim, after.batch, mode, _value(claim, before), _value(claim, after), after, context)


def _value(claim: Claim, row: Row) -> float | None:
    if claim.quantity == "time":
        return row.latency.p50 if row.latency is not None else None
    return row.memory.process if claim.quantity == "memory" else row.device.utilization


def _better(claim: Claim, row: Row, best: Row | None) -> bool:
    """Of several engines the fastest, or the smallest, or the busiest."""
    if best is None:
        return True
    one, other = _value(claim, row) or 0.0, _value(claim, best) or 0.0
    return one > other if claim.quantity == "utilization" else one < other
