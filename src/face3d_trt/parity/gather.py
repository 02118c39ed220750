"""Gathers what candidates say of every picture while batches run, and sums up what that means for its face."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.names import COEFFS, VERTEX
from face3d_trt.parity.meaning import MEASURES, Meter, distances, spread
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from face3d_trt.parity.batches import Batch
    from face3d_trt.parity.truth import Truths

Array = npt.NDArray[Any]
# Coefficients this close say the same face, to 0.0001 mm and degrees; ONNX Runtime's batch sizes differ by as much.
SAME = 1e-6


@dataclass(frozen=True)
class Worst:
    """The worst value of one measure for one picture, and the batch that gave it."""

    value: float
    batch: Batch


@dataclass(frozen=True)
class FaceErrors:
    """One candidate, one picture: the worst over all batches, by measure."""

    candidate: str
    image: str
    worst: Mapping[str, Worst]


@dataclass
class _Seen:
    """One candidate, one picture: its different answers, and what was measured at once."""

    rows: list[Array] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    worst: dict[str, Worst] = field(default_factory=dict)

    def add(self, row: Array, batch: Batch) -> None:
        for known, at in zip(self.rows, self.batches, strict=True):
            same_size = (at.height, at.width) == (batch.height, batch.width)
            if same_size and np.allclose(known, row, rtol=SAME, atol=SAME, equal_nan=True):
                return
        self.rows.append(row)
        self.batches.append(batch)

    def note(self, name: str, value: float, batch: Batch) -> None:
        known, sign = self.worst.get(name), 1 if MEASURES[name].better == "low" else -1
        if known is None or sign * value > sign * known.value:
            self.worst[name] = Worst(value, batch)


class Gatherer:
    """Gathers one comparison.

    Args:
        meter: Measures coefficients; None: there is no morphable model, and only vertex outputs are measured.
        names: Of the pictures.
    """

    def __init__(self, meter: Meter | None, names: Sequence[str]) -> None:
        self._meter = meter
        self._names = names
        self._seen: dict[tuple[str, int], _Seen] = {}

    def add(
        self,
        candidate: str,
        batch: Batch,
        indices: Iterable[int],
        expected: Mapping[str, Array],
        found: Mapping[str, Array],
    ) -> None:
        """Add one run.

        Args:
            candidate: Whose answer it is.
            batch: At which size.
            indices: The picture in each row.
            expected: Outputs of the reference that can be compared, by name, a row for each of `indices`.
            found: The candidate's, of the same shapes where they are among `expected`.
        """
        moved = _moved(expected, found) if VERTEX in expected else {}
        for row, index in enumerate(indices):
            seen = self._seen.setdefault((candidate, int(index)), _Seen())
            if self._meter is not None and COEFFS in expected:
                seen.add(found[COEFFS][row].copy(), batch)
            for name, values in moved.items():
                seen.note(name, float(values[row]), batch)

    def errors(self, reference: Truths, report: Reporter = SILENT) -> tuple[FaceErrors, ...]:
        """What the answers mean, by candidate and picture, in the order of the pictures."""
        order = {name: at for at, name in enumerate(dict.fromkeys(name for name, _ in self._seen))}
        if self._meter is not None and self._seen:
            report.stage("meaning    errors in mm, px and degrees")
            for (_, index), seen in self._seen.items():
                self._decode(seen, index, reference)
        keys = sorted(self._seen, key=lambda key: (order[key[0]], key[1]))
        return tuple(
            FaceErrors(name, self._names[index], self._seen[name, index].worst)
            for name, index in keys
            if self._seen[name, index].worst
        )

    def answer(self, candidate: str, index: int, batch: Batch) -> Array | None:
        """The coefficients (257,) of one picture that were measured at `batch`; None: they were not gathered."""
        seen = self._seen.get((candidate, index), _Seen())
        return next((row for row, at in zip(seen.rows, seen.batches, strict=True) if at == batch), None)

    def _decode(self, seen: _Seen, index: int, reference: Truths) -> None:
        assert self._meter is not None
        for size in dict.fromkeys((batch.height, batch.width) for batch in seen.batches):
            answers = zip(seen.rows, seen.batches, strict=True)
            chosen = [(row, batch) for row, batch in answers if (batch.height, batch.width) == size]
            truth = reference.at(*size).outputs[COEFFS][index : index + 1]
            for name, values in self._meter.measure(truth, np.stack([row for row, _ in chosen])).items():
                for value, (_, batch) in zip(values, chosen, strict=True):
                    seen.note(name, float(value), batch)


def _moved(expected: Mapping[str, Array], found: Mapping[str, Array]) -> dict[str, Array]:
    """How far the vertex output itself is from the reference's, by measure, (batch,) mm."""
    with np.errstate(all="ignore"):
        values = spread("mesh", distances(expected[VERTEX], found[VERTEX]))
    return {name: np.where(np.isfinite(each), each, MEASURES[name].worst) for name, each in values.items()}
