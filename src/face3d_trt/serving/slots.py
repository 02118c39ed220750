"""Places for crops on their way: shared between a front, which fills them, and the engines, which read them there."""

from __future__ import annotations

import bisect
import mmap
import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from face3d_trt.names import COEFFICIENTS, CROP
from face3d_trt.serving.options import CROP_BYTES

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels

_SMALL = 4  # rows; smaller requests are put at the begin, larger ones at the end, so that singles do not cut large gaps


class Slab:
    """Memory for `rows` crops and their coefficients, in a file without a name.

    Args:
        file: Descriptor of the file; None: a new one.
        rows: Crops.

    Attributes:
        file: To be sent to another process.
        crops: (rows, 224, 224, 3) uint8 RGB.
        coeffs: (rows, 257) float32.
    """

    def __init__(self, rows: int, file: int | None = None) -> None:
        size = rows * (CROP_BYTES + COEFFICIENTS * 4)
        if file is None:
            file = os.memfd_create("face3d-trt crops", os.MFD_CLOEXEC)
            os.ftruncate(file, size)
        self.file, self.rows = file, rows
        memory = mmap.mmap(file, size)
        crops = np.frombuffer(memory, np.uint8, rows * CROP_BYTES)
        self.crops: Pixels = crops.reshape(rows, CROP, CROP, 3)
        coeffs = np.frombuffer(memory, np.float32, rows * COEFFICIENTS, rows * CROP_BYTES)
        self.coeffs: npt.NDArray[np.float32] = coeffs.reshape(rows, COEFFICIENTS)

    def bytes_of(self, start: int, rows: int) -> memoryview:
        """The crops from `start` on, as bytes to write into."""
        return memoryview(self.crops[start : start + rows].reshape(-1).data)


class Allocator:
    """Which rows of a slab are free. Not for several threads.

    Args:
        rows: All of them.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self.used = rows, 0
        self._gaps = [(0, rows)]  # (start, rows), in order, none of them touching another

    def take(self, rows: int) -> int | None:
        """Where `rows` rows beside each other are the caller's now; None: there is no such place."""
        small = rows <= _SMALL
        for index in range(len(self._gaps)) if small else reversed(range(len(self._gaps))):
            start, free = self._gaps[index]
            if free < rows:
                continue
            place = start if small else start + free - rows
            rest = (start + rows, free - rows) if small else (start, free - rows)
            self._gaps[index : index + 1] = [rest] if free > rows else []
            self.used += rows
            return place
        return None

    def free(self, start: int, rows: int) -> None:
        """Give back what `take` gave."""
        self.used -= rows
        index = bisect.bisect_left(self._gaps, (start, 0))
        if index < len(self._gaps) and start + rows == self._gaps[index][0]:
            rows += self._gaps.pop(index)[1]
        if index and sum(self._gaps[index - 1]) == start:
            before, length = self._gaps.pop(index - 1)
            start, rows, index = before, length + rows, index - 1
        self._gaps.insert(index, (start, rows))
