"""How many times as fast: against the best PyTorch row, against float32 PyTorch, int8 against fp16."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.bench.records import Mode, Row

FLOAT32 = "torch-fp32"


@dataclass(frozen=True)
class Rival:
    """What a row is held against.

    Attributes:
        row: Of the same mode and batch.
        same_input: Whether it takes the same kind of input.
    """

    row: Row
    same_input: bool


@dataclass(frozen=True)
class Pair:
    """An int8 row beside the fp16 row of the same family, mode, batch and input; beside fp32 where there is no fp16."""

    family: str
    mode: Mode
    batch: int
    base: Row
    int8: Row

    @property
    def times(self) -> float:
        """How many times as fast int8 is."""
        return speed_up(self.int8, self.base)


def speed_up(row: Row, base: Row) -> float:
    """How many times as fast `row` is as `base`: milliseconds of a call, back to back, at the same batch.

    Raises:
        ValueError: One of them was not timed, or the batches differ.
    """
    if row.rate is None or base.rate is None or row.batch != base.batch:
        raise ValueError("two timed rows of one batch are compared")
    return base.rate.ms / row.rate.ms


def is_torch(row: Row) -> bool:
    """Whether PyTorch ran it."""
    return row.backend.startswith("torch")


def best_torch(rows: Iterable[Row], mode: Mode, batch: int, input: str) -> Rival | None:
    """The PyTorch row that counts: the fastest of this mode and batch, of the same input where there is any."""
    return _fastest([row for row in rows if is_torch(row)], mode, batch, input)


def float32_torch(rows: Iterable[Row], mode: Mode, batch: int, input: str) -> Rival | None:
    """Float32 PyTorch at this mode and batch."""
    return _fastest([row for row in rows if row.backend == FLOAT32], mode, batch, input)


def int8_pairs(rows: Sequence[Row]) -> list[Pair]:
    """The fastest int8 row beside the fastest fp16 row, wherever a family has both; a CPU's has fp32 in its place."""
    timed = [row for row in rows if row.rate is not None and not is_torch(row)]
    pairs = []
    for key in dict.fromkeys((family(row), row.mode, row.batch, row.input) for row in timed):
        own = [row for row in timed if (family(row), row.mode, row.batch, row.input) == key]
        fp32, fp16, int8 = (min(_of(own, name), key=_ms, default=None) for name in ("fp32", "fp16", "int8"))
        if (base := fp16 or fp32) is not None and int8 is not None:
            pairs.append(Pair(key[0], key[1], key[2], base, int8))
    return pairs


def family(row: Row) -> str:
    """`torch`, `ort` or `trt`."""
    return row.backend.partition("-")[0]


def _of(rows: Iterable[Row], arithmetic: str) -> list[Row]:
    return [row for row in rows if row.arithmetic == arithmetic]


def _fastest(rows: Iterable[Row], mode: Mode, batch: int, input: str) -> Rival | None:
    here = [row for row in rows if row.mode == mode and row.batch == batch and row.rate is not None]
    alike = [row for row in here if row.input == input]
    best = min(alike or here, key=_ms, default=None)
    return None if best is None else Rival(best, bool(alike))


def _ms(row: Row) -> float:
    return float("inf") if row.rate is None else row.rate.ms
