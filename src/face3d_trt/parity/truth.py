"""What float32 PyTorch says of every picture, once for each image size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from polygraphy.comparator import Comparator

from face3d_trt.names import INPUT
from face3d_trt.parity.batches import resize
from face3d_trt.parity.metrics import ROWS_AT_ONCE, Scale, parts, scale
from face3d_trt.parity.runners import quiet
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
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
class Truth:
    """What is right for every picture at one image size; a picture's result does not depend on the batch it is in.

    Attributes:
        crops: (N, height, width, 3) uint8 RGB.
        outputs: By name, N rows each.
        scales: What errors are divided by.
        diseased: How many values are not finite, where any are not.
    """

    crops: npt.NDArray[np.uint8]
    outputs: dict[str, Array]
    scales: dict[Key, Scale]
    diseased: dict[Key, int]


class Reference:
    """The reference over one set of pictures.

    Args:
        runner: Gives float32 outputs by name.
        pictures: At least two, so that they can differ.
        report: Told which image size is computed.
    """

    def __init__(self, runner: BaseRunner, pictures: Pictures, report: Reporter = SILENT) -> None:
        self.pictures = pictures
        self._runner = runner
        self._report = report
        self._truths: dict[tuple[int, int], Truth] = {}

    def at(self, height: int, width: int) -> Truth:
        """The truth at one image size; the second time it is only looked up."""
        if (height, width) not in self._truths:
            count = len(self.pictures.names)
            self._report.stage(f"reference  float32 PyTorch, {count} pictures at {height}x{width}")
            self._truths[height, width] = self._compute(height, width)
        return self._truths[height, width]

    def _compute(self, height: int, width: int) -> Truth:
        crops = self.pictures.at(height, width)
        starts = range(0, len(crops), ROWS_AT_ONCE)
        feeds = (self.pictures.feed(crops[start : start + ROWS_AT_ONCE]) for start in starts)
        with quiet():
            answers = Comparator.run([self._runner], data_loader=feeds, streaming=True)
            runs = [dict(answer[0][1][0].items()) for answer in answers]
        outputs = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
        keyed = {(name, group): rows[:, columns] for name, rows in outputs.items() for group, columns in parts(name)}
        bad = {key: int((~np.isfinite(rows)).sum()) for key, rows in keyed.items()}
        scales = {key: scale(rows) for key, rows in keyed.items()}
        return Truth(crops, outputs, scales, {key: count for key, count in bad.items() if count})
