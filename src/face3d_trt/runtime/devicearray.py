"""Results that stay on the GPU, for whoever reads `__cuda_array_interface__` or DLPack: torch, CuPy, Numba, pycuda."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import InputError
from face3d_trt.runtime.dlpack import CUDA, LEGACY_STREAM, write_capsule


class Owner(Protocol):
    """Memory on a GPU that a DeviceArray is a view of. It is freed, or used again, when nothing refers to it any more.

    Attributes:
        device: Index of the GPU.
        stream: Handle of the CUDA stream after whose present work the contents are there.
    """

    device: int
    stream: int

    def order(self, stream: int) -> None:
        """Let `stream` wait, on the GPU, until the contents are there."""

    def read(self, address: int, into: npt.NDArray[Any]) -> None:
        """Copy from `address` on into a C-contiguous host array, and wait for it."""


class DeviceArray:
    """A C-contiguous array on a GPU.

        result = engine(images, to="device")["coeffs"]
        torch.from_dlpack(result)         # torch.Tensor, no copy; torch's current stream is ordered after the engine
        cupy.asarray(result)
        result.host()                     # numpy

    The memory stays as long as this array, or anything made of it, does.

    Args:
        address: Of the first element.
        shape: In elements.
        dtype: Of an element.
        owner: Of the memory.
    """

    __slots__ = ("address", "dtype", "owner", "shape")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Owner) -> None:
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.owner = owner

    @property
    def device(self) -> int:
        """Index of the GPU."""
        return self.owner.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3: names the stream that has to be waited for."""
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "strides": None,
            "data": (self.address, False),
            "stream": self.owner.stream or LEGACY_STREAM,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kDLCUDA, index)."""
        return CUDA, self.owner.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule; `stream` is ordered after the results on the GPU, without waiting here.

        Args:
            stream: The consumer's: a handle, 1 or None for the default stream, -1 for "do not order".
            max_version: What the consumer understands.
            dl_device: Where the consumer wants it; only where it is.
            copy: True is refused.

        Raises:
            BufferError: A copy, or another device, is asked for.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(f"this array lies on GPU {self.device} and is not copied; .host() gives a numpy array")
        if stream != -1:
            self.owner.order(0 if stream in (None, LEGACY_STREAM) else int(stream or 0))
        return write_capsule(
            self.address, self.shape, self.dtype, self.__dlpack_device__(), self.owner, max_version=max_version
        )

    def host(self) -> npt.NDArray[Any]:
        """A copy in host memory; waits until the results are there."""
        array = np.empty(self.shape, self.dtype)
        self.owner.read(self.address, array)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Refused: a copy through the host is written out as `.host()`."""
        raise InputError(
            f"this array lies on GPU {self.device}, and numpy reads host memory",
            allowed="torch.from_dlpack, cupy.asarray, or a copy",
            run="result.host()",
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype} {self.shape} on GPU {self.device}>"
