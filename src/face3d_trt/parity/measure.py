"""Run reference and candidates side by side over every batch, and sum up the errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from polygraphy.comparator import Comparator

from face3d_trt.names import INPUT
from face3d_trt.parity.batches import Batch, resize
from face3d_trt.parity.metrics import ErrorSums, Figures, Scale, parts, scale
from face3d_trt.parity.runners import Candidate, CandidateError, quiet
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polygraphy.backend.base import BaseRunner

Array = npt.NDArray[Any]
Key = tuple[str, str | None]  # output, coefficient group (None: the whole output)


@dataclass(frozen=True)
class Pictures:
    """What is fed.

    Attributes:
        crops: (N, 224, 224, 3) uint8 RGB, aligned.
        names: What to call each.
        layout: Of the graph's input.
    """

    crops: npt.NDArray[np.uint8]
    names: tuple[str, ...]
    layout: Literal["float32", "uint8"]

    def at(self, height: int, width: int) -> Array:
        """All of them as the graph takes them, at another size; a quarter of the bytes until they are fed."""
        return resize(self.crops, height, width)

    def feed(self, crops: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """One batch."""
        from face3d_trt.faces.tensor import to_input

        return {INPUT: to_input(crops, self.layout)}


@dataclass(frozen=True)
class Measured:
    """One candidate's figures for one output or group at one batch size."""

    candidate: str
    batch: Batch
    output: str
    group: str | None
    scale: Scale
    figures: Figures


@dataclass(frozen=True)
class Broken:
    """A candidate that could not run a batch, or whose output is missing or of another shape."""

    candidate: str
    batch: Batch
    output: str | None
    problem: str


def measure(
    reference: BaseRunner,
    candidates: Sequence[Candidate],
    sizes: Sequence[Batch],
    pictures: Pictures,
    report: Reporter = SILENT,
) -> tuple[list[Measured], list[Broken], dict[Key, int]]:
    """Compare every candidate with the reference, row by row, at every batch size.

    Args:
        reference: Gives float32 outputs by name.
        candidates: What is measured.
        sizes: Batch sizes and image sizes.
        pictures: At least two, so that they can differ.
        report: Told which batch runs.

    Returns:
        The figures; what could not be compared; how many values of the reference are not finite, where any are not.
    """
    measured: list[Measured] = []
    broken: list[Broken] = []
    scales: dict[tuple[int, int], dict[Key, Scale]] = {}
    diseased: dict[Key, int] = {}
    for batch in sizes:
        sides = (batch.height, batch.width)
        crops = pictures.at(*sides)
        if sides not in scales:
            report.stage(f"float32 PyTorch on {len(crops)} pictures at {sides[0]}x{sides[1]}")
            scales[sides], bad = _scales(reference, crops, pictures)
            diseased |= bad
        report.stage(f"batch {batch.label}: {', '.join(candidate.title for candidate in candidates)}")
        rows, faults = _all_that_run(reference, candidates, batch, crops, pictures, scales[sides])
        measured += rows
        broken += faults
    return measured, broken, diseased


def _all_that_run(
    reference: BaseRunner,
    candidates: Sequence[Candidate],
    batch: Batch,
    crops: npt.NDArray[np.uint8],
    pictures: Pictures,
    scales: Mapping[Key, Scale],
) -> tuple[list[Measured], list[Broken]]:
    """One batch size; a candidate that cannot run it is left out, and the others run."""
    if not candidates:
        return [], []
    try:
        return _one_batch(reference, candidates, batch, crops, pictures, scales)
    except CandidateError as error:
        others = [candidate for candidate in candidates if candidate.name != error.name]
        rows, faults = _all_that_run(reference, others, batch, crops, pictures, scales)
        return rows, [Broken(error.name, batch, None, error.problem), *faults]


def _scales(
    reference: BaseRunner, crops: npt.NDArray[np.uint8], pictures: Pictures
) -> tuple[dict[Key, Scale], dict[Key, int]]:
    feeds = (pictures.feed(crops[at : at + 8]) for at in range(0, len(crops), 8))
    with quiet():
        runs = [dict(run[0][1][0].items()) for run in Comparator.run([reference], data_loader=feeds, streaming=True)]
    scales: dict[Key, Scale] = {}
    bad: dict[Key, int] = {}
    for output in runs[0]:
        rows = np.concatenate([run[output].reshape(len(run[output]), -1) for run in runs])
        for group, columns in parts(output):
            scales[output, group] = scale(rows[:, columns])
            if count := int((~np.isfinite(rows[:, columns])).sum()):
                bad[output, group] = count
    return scales, bad


def _one_batch(
    reference: BaseRunner,
    candidates: Sequence[Candidate],
    batch: Batch,
    crops: npt.NDArray[np.uint8],
    pictures: Pictures,
    scales: Mapping[Key, Scale],
) -> tuple[list[Measured], list[Broken]]:
    """All runs of one batch size.

    Raises:
        CandidateError: One of the candidates could not run it.
    """
    sums = {(c.name, *key): ErrorSums(divisor) for c in candidates for key, divisor in scales.items()}
    faults: dict[tuple[str, str], Broken] = {}
    chosen = list(batch.fill(len(crops)))
    feeds = (pictures.feed(crops[indices]) for indices in chosen)
    runners = [reference, *(candidate.runner for candidate in candidates)]
    with quiet():
        # streaming: one batch of outputs at a time; a mesh of 35,709 vertices is 27 MB for 32 rows
        for run, indices in zip(
            Comparator.run(runners, data_loader=feeds, streaming=True), _listed(chosen), strict=True
        ):
            results = [dict(outputs[0].items()) for _, outputs in run.items()]
            images = [pictures.names[index] for index in indices]
            for candidate, result in zip(candidates, results[1:], strict=True):
                for output, expected in results[0].items():
                    problem = _misfit(output, expected, result)
                    if problem:
                        faults[candidate.name, output] = Broken(candidate.name, batch, output, problem)
                        continue
                    for group, columns in parts(output):
                        sums[candidate.name, output, group].add(
                            expected[:, columns], result[output][:, columns], images
                        )
    rows = [
        Measured(name, batch, output, group, total.scale, total.figures())
        for (name, output, group), total in sums.items()
        if (name, output) not in faults
    ]
    return rows, list(faults.values())


def _listed(chosen: Sequence[npt.NDArray[np.intp]]) -> Iterator[list[int]]:
    for indices in chosen:
        yield indices.tolist()


def _misfit(output: str, expected: Array, result: Mapping[str, Array]) -> str | None:
    if output not in result:
        return f"it has no output {output}; its outputs are {', '.join(result)}"
    if result[output].shape != expected.shape:
        return f"{output} has the shape {result[output].shape}, the reference {expected.shape}"
    return None
