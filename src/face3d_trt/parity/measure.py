"""Run the reference on every picture and the candidates over every batch, and sum up the errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from polygraphy.comparator import Comparator
from polygraphy.exception import PolygraphyException

from face3d_trt.names import INPUT
from face3d_trt.parity.batches import Batch, resize
from face3d_trt.parity.metrics import ROWS_AT_ONCE, ErrorSums, Figures, Scale, parts, scale
from face3d_trt.parity.runners import Candidate, CandidateError, quiet
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

    def at(self, height: int, width: int) -> npt.NDArray[np.uint8]:
        """All of them at another size: (N, height, width, 3) uint8, a quarter of the bytes of what is fed."""
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
    diseased: dict[Key, int] = {}
    truths: dict[tuple[int, int], _Truth] = {}
    for batch in sizes:
        sides = (batch.height, batch.width)
        if sides not in truths:
            report.stage(f"reference  float32 PyTorch, {len(pictures.names)} pictures at {sides[0]}x{sides[1]}")
            truths[sides] = _truth(reference, pictures, *sides)
            diseased |= truths[sides].diseased
        report.stage(f"compare    batch {batch.label}")
        rows, faults = _all_that_run(candidates, batch, pictures, truths[sides])
        measured += rows
        broken += faults
    return measured, broken, diseased


@dataclass(frozen=True)
class _Truth:
    """What is right for every picture at one image size; a picture's result does not depend on the batch it is in."""

    crops: npt.NDArray[np.uint8]
    outputs: dict[str, Array]
    scales: dict[Key, Scale]
    diseased: dict[Key, int]


def _truth(reference: BaseRunner, pictures: Pictures, height: int, width: int) -> _Truth:
    crops = pictures.at(height, width)
    feeds = (pictures.feed(crops[start : start + ROWS_AT_ONCE]) for start in range(0, len(crops), ROWS_AT_ONCE))
    with quiet():
        runs = [dict(run[0][1][0].items()) for run in Comparator.run([reference], data_loader=feeds, streaming=True)]
    outputs = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    keyed = {(name, group): rows[:, columns] for name, rows in outputs.items() for group, columns in parts(name)}
    bad = {key: int((~np.isfinite(rows)).sum()) for key, rows in keyed.items()}
    scales = {key: scale(rows) for key, rows in keyed.items()}
    return _Truth(crops, outputs, scales, {key: count for key, count in bad.items() if count})


def _all_that_run(
    candidates: Sequence[Candidate], batch: Batch, pictures: Pictures, truth: _Truth
) -> tuple[list[Measured], list[Broken]]:
    """One batch size; a candidate that cannot run it is left out, and the others run."""
    if not candidates:
        return [], []
    try:
        return _one_batch(candidates, batch, pictures, truth)
    except CandidateError as error:
        broken = Broken(error.name, batch, None, error.problem)
    except PolygraphyException as error:  # ONNX Runtime's runners name themselves, which leaves the engine
        broken = Broken("tensorrt", batch, None, str(error))
    others = [candidate for candidate in candidates if candidate.name != broken.candidate]
    if len(others) == len(candidates):
        raise CandidateError(broken.candidate, f"batch {batch.label}: {broken.problem}")
    rows, faults = _all_that_run(others, batch, pictures, truth)
    return rows, [broken, *faults]


def _one_batch(
    candidates: Sequence[Candidate], batch: Batch, pictures: Pictures, truth: _Truth
) -> tuple[list[Measured], list[Broken]]:
    """All runs of one batch size.

    Raises:
        CandidateError: One of the candidates could not run it.
    """
    sums = {(c.name, *key): ErrorSums(divisor) for c in candidates for key, divisor in truth.scales.items()}
    faults: dict[tuple[str, str], Broken] = {}
    chosen = list(batch.fill(len(truth.crops)))
    feeds = (pictures.feed(truth.crops[indices]) for indices in chosen)
    runners = [candidate.runner(batch.profile) for candidate in candidates]
    with quiet():
        # streaming: one batch of outputs at a time; a mesh of 35,709 vertices is 27 MB for 32 rows
        for run, indices in zip(Comparator.run(runners, data_loader=feeds, streaming=True), chosen, strict=True):
            images = [pictures.names[index] for index in indices]
            for candidate, (_, outputs) in zip(candidates, run.items(), strict=True):
                result = dict(outputs[0].items())
                for name, rows in truth.outputs.items():
                    expected = rows[indices]
                    problem = _misfit(name, expected, result)
                    if problem:
                        faults[candidate.name, name] = Broken(candidate.name, batch, name, problem)
                        continue
                    for group, columns in parts(name):
                        sums[candidate.name, name, group].add(expected[:, columns], result[name][:, columns], images)
    figures = [
        Measured(name, batch, output, group, total.scale, total.figures())
        for (name, output, group), total in sums.items()
        if (name, output) not in faults
    ]
    return figures, list(faults.values())


def _misfit(output: str, expected: Array, result: Mapping[str, Array]) -> str | None:
    if output not in result:
        return f"it has no output {output}; its outputs are {', '.join(result)}"
    if result[output].shape != expected.shape:
        return f"{output} has the shape {result[output].shape}, the reference {expected.shape}"
    return None
