"""Memory that the caller holds: results on the GPU, and page-locked arrays. It comes back when he lets go of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from face3d_trt.runtime.cuda import Device
    from face3d_trt.runtime.resources import DeviceMemory, PinnedMemory

_FEW = 64  # pieces of memory that may wait to be freed: freeing waits for the GPU, so it is done in one go
_LITTLE = 64 << 20  # and their bytes


class Loans:
    """What is lent, and what came back.

    The garbage collector gives things back, anywhere, perhaps amid a capture. So it only puts them in a line, and the
    next loan frees them.

    Args:
        device: Where the memory is.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._back: deque[DeviceMemory | PinnedMemory] = deque()
        self._pinned: dict[int, int] = {}  # address -> bytes
        self._closed = False

    def on_device(self, nbytes: int, stream: int) -> Loan:
        """Memory on the GPU, with the context current.

        Args:
            nbytes: Its size.
            stream: Handle of the stream on which the contents are ordered.
        """
        self.free_returned()
        return Loan(self, self._device, self._device.alloc(nbytes), stream)

    def on_host(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """A page-locked array, with the context current."""
        self.free_returned()
        memory = self._device.pinned(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        self._pinned[memory.address] = memory.nbytes
        return np.asarray(_PinnedLoan(self, memory, shape, dtype))

    def holds(self, array: npt.NDArray[Any]) -> bool:
        """Whether a C-contiguous array lies in page-locked memory of ours."""
        if not self._pinned or not array.flags.c_contiguous:
            return False
        address = array.__array_interface__["data"][0]
        return any(
            start <= address and address + array.nbytes <= start + nbytes
            for start, nbytes in tuple(self._pinned.items())
        )

    def give_back(self, memory: DeviceMemory | PinnedMemory) -> None:
        """Called by whoever was the last to hold it."""
        if memory.freed:
            return
        self._back.append(memory)
        if self._closed and not self._device.dead:
            with self._device.current():
                self.free_returned(everything=True)
            self._device.release_if_closing()

    def free_returned(self, *, everything: bool = False) -> None:
        """Free what came back, with the context current, unless it is little."""
        if not everything and len(self._back) < _FEW and sum(each.nbytes for each in tuple(self._back)) < _LITTLE:
            return
        while self._back:
            try:
                memory = self._back.popleft()
            except IndexError:  # another thread was faster
                return
            self._pinned.pop(memory.address, None)
            memory.free()

    def close(self) -> None:
        """Free what came back; what comes later is freed as it comes. With the context current."""
        self._closed = True
        self.free_returned(everything=True)


class Loan:
    """Memory on the GPU that a DeviceArray is a view of; see devicearray.Owner."""

    __slots__ = ("__weakref__", "_loans", "_place", "device", "memory", "stream")

    def __init__(self, loans: Loans, place: Device, memory: DeviceMemory, stream: int) -> None:
        memory.lent = True
        self._loans, self._place, self.memory = loans, place, memory
        self.device, self.stream = place.index, stream

    def order(self, stream: int) -> None:
        """Let `stream` wait on the GPU until the contents are there."""
        if stream != self.stream:
            with self._place.current():
                self._place.order(self.stream, stream)

    def read(self, address: int, into: npt.NDArray[Any]) -> None:
        """Copy to the host and wait."""
        with self._place.current():
            self._place.read(into, address, self.stream)

    def __del__(self) -> None:
        self._loans.give_back(self.memory)


class _PinnedLoan:
    """What a page-locked array of the caller, and every view of it, hold on to."""

    def __init__(self, loans: Loans, memory: PinnedMemory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        memory.lent = True
        self._loans, self._memory = loans, memory
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (memory.address, False),
        }

    def __del__(self) -> None:
        self._loans.give_back(self._memory)
