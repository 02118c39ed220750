"""DLPack by ctypes, held against two other implementations: numpy's and torch's."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch

from face3d_trt.errors import InputError
from face3d_trt.runtime import dlpack
from face3d_trt.runtime.dlpack import CPU, device_view, memory_of, read_capsule, stream_handle, write_capsule

DTYPES = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bool"]


class Shared:
    """An array that is given away by our capsules only."""

    def __init__(self, array: np.ndarray, *, versioned: bool = True) -> None:
        self.array = array
        self.versioned = versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, *, stream: object = None, max_version: object = None, **_: object) -> object:
        array = self.array
        version = max_version if self.versioned else None
        return write_capsule(array.ctypes.data, array.shape, array.dtype, (CPU, 0), array, max_version=version)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_is_read(dtype):
    tensor = torch.ones((2, 3, 5), dtype=getattr(torch, dtype))
    for capsule in (tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))):
        view = read_capsule(capsule)
        assert (view.address, view.shape, view.dtype) == (tensor.data_ptr(), (2, 3, 5), np.dtype(dtype))
        assert view.contiguous


def test_views_are_seen_with_their_offset_and_order():
    tensor = torch.arange(24.0).reshape(4, 6)
    assert read_capsule(tensor[1:].__dlpack__()).address == tensor.data_ptr() + 6 * 4
    assert read_capsule(tensor[1:].__dlpack__()).contiguous
    assert not read_capsule(tensor[:, 1:].__dlpack__()).contiguous
    assert not read_capsule(tensor.T.__dlpack__()).contiguous
    assert read_capsule(tensor[:1, :].T.reshape(6, 1).__dlpack__()).contiguous  # an axis of one may have any stride


def test_reading_keeps_the_memory_and_letting_go_frees_it():
    array = np.arange(1000.0)
    alive = weakref.ref(array)
    view = read_capsule(Shared(array).__dlpack__())
    del array
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_numpy_and_torch_read(dtype, versioned):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for other in (np.from_dlpack(Shared(array, versioned=versioned)), torch.from_dlpack(Shared(array)).numpy()):
        assert other.dtype == array.dtype
        assert (other == array).all()
        assert np.shares_memory(other, array)


def test_nothing_is_held_once_every_reader_has_let_go():
    before = len(dlpack._held)
    array = np.zeros((4, 4), np.float32)
    readers = [np.from_dlpack(Shared(array)), torch.from_dlpack(Shared(array)), Shared(array).__dlpack__()]
    assert len(dlpack._held) == before + 3
    readers.clear()
    gc.collect()
    assert len(dlpack._held) == before


def test_a_reader_that_outlives_the_interpreter_frees_without_a_crash():
    program = """
import numpy as np, torch
from tests.runtime.test_dlpack import Shared
kept = torch.from_dlpack(Shared(np.ones(1000))), np.from_dlpack(Shared(np.ones(1000)))
torch.kept = kept          # goes when the modules do
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_capsule_is_used_once_only():
    capsule = torch.zeros(3).__dlpack__()
    torch.from_dlpack(capsule)
    with pytest.raises(InputError, match="used before"):
        read_capsule(capsule)
    with pytest.raises(InputError, match="no DLPack capsule"):
        read_capsule(object())


def test_types_that_numpy_lacks_are_named():
    with pytest.raises(InputError, match="16 bits"):
        read_capsule(torch.zeros(3, dtype=torch.bfloat16).__dlpack__())


class OnGpu:
    """What a GPU array says of itself; version 3 names the stream that its contents wait for."""

    def __init__(self, **facts: object) -> None:
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3} | facts


@pytest.mark.parametrize(
    ("facts", "ready"),
    [
        ({"stream": 77}, 77),
        ({"stream": None}, None),  # nothing is pending
        ({}, None),
        ({"version": 2}, 1),  # says nothing: the default stream
    ],
)
def test_the_cuda_array_interface_says_what_to_wait_for(facts, ready):
    view = device_view(OnGpu(**facts), 5)
    assert (view.address, view.shape, view.dtype, view.contiguous) == (4096, (2, 3), np.float32, True)
    assert view.ready == ready


def test_the_cuda_array_interface_counts_strides_in_bytes():
    assert device_view(OnGpu(strides=(12, 4)), 5).contiguous
    assert not device_view(OnGpu(strides=(16, 4)), 5).contiguous
    assert not device_view(OnGpu(strides=(4, 8)), 5).contiguous


def test_where_an_array_lies():
    assert memory_of(torch.zeros(1)) == "host"
    assert memory_of(OnGpu()) == "gpu"
    assert memory_of([1.0]) == ""


def test_streams_of_the_usual_libraries_give_their_handle():
    class Named:
        def __init__(self, name: str) -> None:
            setattr(self, name, 1234)

    class Core:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 1234

    for stream in (1234, Named("cuda_stream"), Named("ptr"), Named("handle"), Core()):
        assert stream_handle(stream) == 1234
    assert stream_handle(None) is None
    for wrong in ("default", True, 1.0):
        with pytest.raises(InputError, match="names no CUDA stream"):
            stream_handle(wrong)
