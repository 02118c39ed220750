"""Run the candidates over every batch, hold their rows against the truth, and sum up the errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polygraphy.comparator import Comparator
from polygraphy.exception import PolygraphyException

from face3d_trt.parity.metrics import ErrorSums, Figures, Scale, parts
from face3d_trt.parity.runners import Candidate, CandidateError, quiet
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from face3d_trt.parity.batches import Batch
    from face3d_trt.parity.memory import HostMemory
    from face3d_trt.parity.truth import Array, Key, Truth, Truths


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


@dataclass(frozen=True)
class Measurement:
    """All that was found.

    Attributes:
        measured: The figures.
        broken: What could not be compared.
        diseased: How many values of the reference are not finite, where any are not.
        left_out: Batches that ONNX Runtime was not given, for want of memory.
    """

    measured: tuple[Measured, ...]
    broken: tuple[Broken, ...]
    diseased: dict[Key, int]
    left_out: tuple[Batch, ...]


def measure(
    reference: Truths,
    candidates: Sequence[Candidate],
    sizes: Sequence[Batch],
    memory: HostMemory | None = None,
    report: Reporter = SILENT,
) -> Measurement:
    """Compare every candidate with the reference, row by row, at every batch size.

    Args:
        reference: The truth and its pictures.
        candidates: What is measured.
        sizes: Batch sizes and image sizes.
        memory: What candidates that run on the CPU may take; None: no limit.
        report: Told which batch runs.
    """
    measured: list[Measured] = []
    broken: list[Broken] = []
    diseased: dict[Key, int] = {}
    left_out: list[Batch] = []
    for batch in sizes:
        able = [each for each in candidates if not each.on_host or memory is None or memory.fits(batch)]
        if len(able) < len(candidates):
            left_out.append(batch)
        if not able:
            continue
        truth = reference.at(batch.height, batch.width)
        diseased |= truth.diseased
        report.stage(f"compare    batch {batch.label}")
        rows, faults = _all_that_run(able, batch, reference, truth)
        measured += rows
        broken += faults
    return Measurement(tuple(measured), tuple(broken), diseased, tuple(left_out))


def _all_that_run(
    candidates: Sequence[Candidate], batch: Batch, pictures: Truths, truth: Truth
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
    candidates: Sequence[Candidate], batch: Batch, pictures: Truths, truth: Truth
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
