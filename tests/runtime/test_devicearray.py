"""A result on the GPU; here its memory is the host's, so that what it says of itself can be read back."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest

from face3d_trt.errors import InputError
from face3d_trt.runtime.devicearray import DeviceArray
from face3d_trt.runtime.dlpack import device_view, memory_of


class HostMemory:
    """Plays the GPU's memory."""

    device = 1
    stream = 0

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.ordered: list[int] = []

    def order(self, stream: int) -> None:
        self.ordered.append(stream)

    def read(self, address: int, into: np.ndarray) -> None:
        ctypes.memmove(into.ctypes.data, address, into.nbytes)


@pytest.fixture
def memory() -> HostMemory:
    return HostMemory(np.arange(12, dtype=np.float32).reshape(4, 3))


def rows(memory: HostMemory, start: int, stop: int) -> DeviceArray:
    part = memory.array[start:stop]
    return DeviceArray(part.ctypes.data, part.shape, part.dtype, memory)


def test_its_facts(memory):
    array = rows(memory, 1, 3)
    assert (array.shape, array.ndim, array.nbytes, len(array), array.device) == ((2, 3), 2, 24, 2, 1)
    assert (array.host() == memory.array[1:3]).all()


def test_the_default_stream_is_written_as_both_protocols_want_it(memory):
    array = rows(memory, 0, 4)
    facts = array.__cuda_array_interface__
    assert facts["stream"] == 1  # 0 is forbidden there
    assert facts["data"] == (memory.array.ctypes.data, False)
    for given in (None, 1, 2, 4711, -1):
        array.__dlpack__(stream=given)
    assert memory.ordered == [0, 0, 2, 4711]  # -1: the consumer orders by itself


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_our_own_reader_reads_it(memory, version):
    array = rows(memory, 1, 4)
    assert memory_of(array) == "gpu"
    view = device_view(array, 99)
    assert (view.address, view.shape, view.dtype, view.device) == (array.address, (3, 3), np.float32, 1)
    assert memory.ordered == [99]


def test_the_memory_lives_as_long_as_anything_made_of_it():
    memory = HostMemory(np.zeros((2, 2), np.float32))
    alive = weakref.ref(memory)
    capsule = rows(memory, 0, 2).__dlpack__()
    del memory
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


def test_it_is_not_copied_behind_the_callers_back(memory):
    array = rows(memory, 0, 4)
    with pytest.raises(InputError, match="numpy reads host memory"):
        np.asarray(array)
    with pytest.raises(BufferError):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        np.from_dlpack(array, device="cpu")
