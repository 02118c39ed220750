"""Memory that processes share: pixels stay where they are, messages say where."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.faces.images import LONG_SIDE
from face3d_trt.names import COEFFICIENTS

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels

_PAGE = mmap.PAGESIZE
_PHOTO = LONG_SIDE * LONG_SIDE * 3  # bytes of the largest photo


@dataclass(frozen=True)
class Layout:
    """What one bay holds, in bytes from its start.

    Attributes:
        rows: The most crops.
        side: Of the largest crop, px.
        photo: Whether there is room for a photo.
    """

    rows: int
    side: int
    photo: bool

    @property
    def coeffs(self) -> int:
        """Offset of the coefficients; before them, one number says which item is being worked on."""
        return 64

    @property
    def crops(self) -> int:
        """Offset of the crops."""
        return _pages(self.coeffs + self.rows * COEFFICIENTS * 4)

    @property
    def stride(self) -> int:
        """From one crop to the next."""
        return self.side * self.side * 3

    @property
    def pixels(self) -> int:
        """Offset of the photo."""
        return self.crops + _pages(self.rows * self.stride)

    @property
    def size(self) -> int:
        """Of all of it. Memory is taken only as it is written to."""
        return self.pixels + (_pages(_PHOTO) if self.photo else 0)


class Memory:
    """A file without a name in any file system, which processes are handed as they are started (spawn).

    It goes with the last process that has it, whatever ends that; and the size of /dev/shm, which containers keep
    small, does not matter.
    """

    def __init__(self) -> None:
        self.file = os.memfd_create("face3d-trt", os.MFD_CLOEXEC)

    def __getstate__(self) -> Any:
        return reduction.DupFd(self.file)

    def __setstate__(self, state: Any) -> None:
        self.file = state.detach()


class Bays:
    """Places for groups of pictures on their way, the same in every process.

    Args:
        memory: Where; the first to make bays in it gives it its size.
        count: How many.
        layout: Of each.
    """

    def __init__(self, memory: Memory, count: int, layout: Layout) -> None:
        self.count, self.layout = count, layout
        size = count * layout.size
        if os.fstat(memory.file).st_size < size:
            os.ftruncate(memory.file, size)
        self._bytes: Pixels = np.frombuffer(mmap.mmap(memory.file, size), np.uint8)

    def photo(self, bay: int, shape: tuple[int, int]) -> Pixels:
        """(height, width, 3): the photo's place."""
        begin = bay * self.layout.size + self.layout.pixels
        return self._bytes[begin : begin + shape[0] * shape[1] * 3].reshape(*shape, 3)

    def crops(self, bay: int, start: int, stop: int, shape: tuple[int, int]) -> Pixels:
        """(stop - start, height, width, 3): crops of one size; without gaps where they are as large as crops can be."""
        begin, stride = bay * self.layout.size + self.layout.crops, self.layout.stride
        slots = self._bytes[begin + start * stride : begin + stop * stride].reshape(stop - start, stride)
        return slots[:, : shape[0] * shape[1] * 3].reshape(stop - start, *shape, 3)

    def coeffs(self, bay: int, start: int, stop: int) -> npt.NDArray[np.float32]:
        """(stop - start, 257)."""
        begin = bay * self.layout.size + self.layout.coeffs + start * COEFFICIENTS * 4
        part = self._bytes[begin : begin + (stop - start) * COEFFICIENTS * 4]
        return part.view(np.float32).reshape(stop - start, COEFFICIENTS)

    def at(self, bay: int) -> npt.NDArray[np.int64]:
        """(1,): which item of the group is worked on: what is known when a process dies."""
        begin = bay * self.layout.size
        return self._bytes[begin : begin + 8].view(np.int64)

    def fits(self, shape: tuple[int, int]) -> bool:
        """Whether a crop of that size has room."""
        return shape[0] * shape[1] * 3 <= self.layout.stride


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
