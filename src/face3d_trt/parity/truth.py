"""What float32 PyTorch says of every picture, once for each image size: computed here, or saved where torch is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from polygraphy.comparator import Comparator

from face3d_trt.names import COEFFS, INPUT
from face3d_trt.parity.batches import resize
from face3d_trt.parity.metrics import ROWS_AT_ONCE, Scale, parts, scale
from face3d_trt.parity.runners import quiet
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        return feed(crops, self.layout)


def feed(crops: npt.NDArray[np.uint8], layout: Literal["float32", "uint8"]) -> dict[str, Array]:
    """Crops, (batch, height, width, 3) uint8 RGB, as the graph's input of that layout."""
    from face3d_trt.faces.tensor import to_input

    return {INPUT: to_input(crops, layout)}


@dataclass(frozen=True)
class Truth:
    """What is right for every picture at one image size; a picture's result does not depend on the batch it is in.

    Attributes:
        crops: (N, height, width, 3) uint8 RGB.
        outputs: By name, N rows each.
        scales: What errors are divided by.
        diseased: How many values are not finite, where any are not.
        usual: Variation of the coefficients over the package's sample faces at this size, for comparison with that over
            these pictures; None where the samples are among these.
    """

    crops: npt.NDArray[np.uint8]
    outputs: dict[str, Array]
    scales: dict[Key, Scale]
    diseased: dict[Key, int]
    usual: float | None = None


def truth_of(crops: npt.NDArray[np.uint8], outputs: Mapping[str, Array], usual: float | None) -> Truth:
    """The truth, from the reference's outputs for `crops`: scales and the count of what is not finite follow."""
    keyed = {(name, group): rows[:, columns] for name, rows in outputs.items() for group, columns in parts(name)}
    bad = {key: int((~np.isfinite(rows)).sum()) for key, rows in keyed.items()}
    scales = {key: scale(rows) for key, rows in keyed.items()}
    return Truth(crops, dict(outputs), scales, {key: count for key, count in bad.items() if count}, usual)


class Truths(Protocol):
    """The truth about one set of pictures at whatever image sizes are asked for."""

    @property
    def names(self) -> tuple[str, ...]:
        """What to call each picture."""

    def feed(self, crops: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """One batch of crops as the graph takes it."""

    def at(self, height: int, width: int) -> Truth:
        """The truth at one image size."""


class Reference:
    """The reference over one set of pictures, computed.

    Args:
        runner: Gives float32 outputs by name.
        pictures: At least two, so that they can differ.
        report: Told which image size is computed.
        samples: The package's sample faces, (N, 224, 224, 3) uint8 RGB, for `Truth.usual`; None: it is not asked for.
    """

    def __init__(
        self,
        runner: BaseRunner,
        pictures: Pictures,
        report: Reporter = SILENT,
        samples: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        self.pictures = pictures
        self._runner = runner
        self._report = report
        self._samples = samples
        self._truths: dict[tuple[int, int], Truth] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What to call each picture."""
        return self.pictures.names

    def feed(self, crops: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """One batch of crops as the graph takes it."""
        return self.pictures.feed(crops)

    def at(self, height: int, width: int) -> Truth:
        """The truth at one image size; the second time it is only looked up."""
        if (height, width) not in self._truths:
            count = len(self.pictures.names)
            self._report.stage(f"reference  float32 PyTorch, {count} pictures at {height}x{width}")
            self._truths[height, width] = self._compute(height, width)
        return self._truths[height, width]

    def _compute(self, height: int, width: int) -> Truth:
        crops = self.pictures.at(height, width)
        usual = None
        if self._samples is not None:
            found = scale(self._outputs(resize(self._samples, height, width))[COEFFS])
            usual = found.value if found.kind == "variation" else None
        return truth_of(crops, self._outputs(crops), usual)

    def _outputs(self, crops: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """By name, a row for each crop."""
        starts = range(0, len(crops), ROWS_AT_ONCE)
        feeds = (self.feed(crops[start : start + ROWS_AT_ONCE]) for start in starts)
        with quiet():
            answers = Comparator.run([self._runner], data_loader=feeds, streaming=True)
            runs = [dict(answer[0][1][0].items()) for answer in answers]
        return {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
