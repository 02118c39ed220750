"""Arrays of other libraries by address: DLPack capsules and `__cuda_array_interface__`, read and written by ctypes.

The layouts are those of dlpack.h, version 1; nothing is imported for it. Both protocols are described at
https://dmlc.github.io/dlpack and https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html (version 3).
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from face3d_trt.errors import InputError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
ON_HOST, ON_GPU = (CPU, CUDA_HOST), (CUDA, CUDA_MANAGED)
LEGACY_STREAM = 1  # how both protocols write CUDA's default stream, whose handle is 0
VERSION = (1, 0)  # of the versioned capsule
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}  # DLDataTypeCode
_CODES = {kind: code for code, kind in _KINDS.items()}
_READ_ONLY, _COPIED = 1, 2  # flags of the versioned capsule


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),  # in elements; null: C-contiguous
        ("byte_offset", ctypes.c_uint64),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("version", _Version),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_PLAIN, _USED = b"dltensor", b"used_dltensor"
_VERSIONED, _USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"
_STRUCTS: dict[bytes, Any] = {_PLAIN: _Managed, _VERSIONED: _ManagedVersioned}

_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # by address: the capsule has no references left
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_capsule_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@dataclass(frozen=True)
class DeviceView:
    """An array in memory that somebody else owns.

    Attributes:
        address: Of the first element.
        shape: In elements.
        dtype: In numpy's words.
        contiguous: Whether it lies there in C order without gaps.
        device: Index of the GPU; None where the protocol does not say.
        ready: Handle of the stream that has to be waited for before the array is read; None: nothing has to be.
        keep_alive: As long as somebody holds it, the memory stays.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    contiguous: bool
    device: int | None
    ready: int | None
    keep_alive: object


def memory_of(images: object) -> str:
    """Where an array lies: "host", "gpu", "elsewhere" (another make of device), or "" for what is no array."""
    if hasattr(images, "__dlpack_device__"):
        try:
            kind = int(images.__dlpack_device__()[0])
        except (BufferError, RuntimeError, ValueError):  # torch's "meta" device, which has no memory
            return "elsewhere"
        return "host" if kind in ON_HOST else "gpu" if kind in ON_GPU else "elsewhere"
    return "gpu" if hasattr(images, "__cuda_array_interface__") else ""


def device_view(images: Any, stream: int) -> DeviceView:
    """Read where an array on a GPU lies.

    Through DLPack its owner makes `stream` wait for it, so that `ready` is None. `__cuda_array_interface__` names a
    stream, or says that nothing is pending; before its version 3 it said nothing, and then the default stream counts.

    Args:
        images: Something whose `memory_of` is "gpu".
        stream: Handle of the CUDA stream that is going to read it.

    Raises:
        InputError: Its owner does not give it away, or it has a type that numpy does not know.
    """
    if hasattr(images, "__dlpack__"):
        return read_capsule(_ask(images, stream or LEGACY_STREAM), images)
    facts = images.__cuda_array_interface__
    shape, dtype = tuple(facts["shape"]), np.dtype(facts["typestr"])
    pending = facts.get("stream", LEGACY_STREAM if facts.get("version", 0) < 3 else None)
    return DeviceView(
        address=int(facts["data"][0] or 0),
        shape=shape,
        dtype=dtype,
        contiguous=_in_order(shape, facts.get("strides"), dtype.itemsize),
        device=None,
        ready=None if pending is None else int(pending),
        keep_alive=images,
    )


def read_capsule(capsule: object, owner: object = None) -> DeviceView:
    """Read a DLPack capsule, plain or versioned.

    The capsule is not consumed: as long as it lives, so does the memory, and its own destructor gives it back.

    Args:
        capsule: What `__dlpack__` returned.
        owner: Kept alive together with it.

    Raises:
        InputError: It is no such capsule, was consumed before, or holds types that numpy does not know.
    """
    name = next((name for name in _STRUCTS if _is_capsule(capsule, name)), None)
    if name is None:
        raise InputError(
            "what __dlpack__ returned is no DLPack capsule, or one that was used before",
            allowed="an array with __cuda_array_interface__ or DLPack",
        )
    managed = _STRUCTS[name].from_address(_pointer(capsule, name))
    if name == _VERSIONED and managed.version.major > VERSION[0]:
        raise InputError(f"DLPack {managed.version.major} is too new", allowed=f"DLPack up to {VERSION[0]}.x")
    tensor = managed.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    return DeviceView(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        dtype=_dtype(tensor.dtype),
        contiguous=_in_order(shape, strides, 1),
        device=tensor.device.index if tensor.device.kind == CUDA else None,
        ready=None,
        keep_alive=(capsule, owner),
    )


def write_capsule(
    address: int,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    device: tuple[int, int],
    keep_alive: object,
    *,
    max_version: tuple[int, int] | None = None,
) -> object:
    """A DLPack capsule of C-contiguous memory.

    Args:
        address: Of the first element.
        shape: In elements.
        dtype: Integer, float or bool.
        device: (DLDeviceType, index).
        keep_alive: Held until whoever took the capsule gives the memory back.
        max_version: What the consumer understands; None or below 1: the plain capsule.
    """
    name = _VERSIONED if max_version is not None and max_version[0] >= 1 else _PLAIN
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    steps = (ctypes.c_int64 * len(shape))(*(math.prod(shape[axis + 1 :]) for axis in range(len(shape))))
    key = next(_keys)
    managed = _STRUCTS[name](context=key, deleter=_delete[name])
    managed.tensor = _Tensor(
        data=address,
        device=_Device(*device),
        ndim=len(shape),
        dtype=_DataType(_CODES[dtype.kind], dtype.itemsize * 8, 1),
        shape=ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
        strides=ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)),
    )
    if name == _VERSIONED:
        managed.version = _Version(*VERSION)
    _held[key] = (managed, sizes, steps, keep_alive)
    return _new_capsule(ctypes.addressof(managed), name, _destroy)


def stream_handle(stream: Any) -> int | None:
    """The handle of a CUDA stream: an int, or a stream of torch, CuPy, pycuda or cuda-python.

    Raises:
        InputError: It is none of these.
    """
    if stream is None or (isinstance(stream, int) and not isinstance(stream, bool)):
        return stream
    if hasattr(stream, "__cuda_stream__"):  # cuda.core's protocol: (version, handle)
        told = stream.__cuda_stream__
        return int((told() if callable(told) else told)[1])
    for name in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, pycuda
        if isinstance(handle := getattr(stream, name, None), int):
            return handle
    raise InputError(
        f"stream is {type(stream).__name__}, which names no CUDA stream",
        allowed="a handle (int), or a stream of torch, CuPy, pycuda or cuda-python",
        run="engine(images, stream=torch.cuda.current_stream())",
    )


def _ask(images: Any, stream: int) -> object:
    try:
        try:
            return images.__dlpack__(stream=stream, max_version=VERSION)
        except TypeError:  # a producer of before max_version
            return images.__dlpack__(stream=stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"{type(images).__name__} does not give its memory away: {error}",
            allowed="an array that needs no gradient, on the engine's GPU",
            run="engine(images.detach())",
        ) from error


def _dtype(kind: _DataType) -> np.dtype[Any]:
    if kind.code not in _KINDS or kind.lanes != 1 or kind.bits % 8:
        raise InputError(
            f"DLPack type (code {kind.code}, {kind.bits} bits, {kind.lanes} lanes) is none that an engine takes",
            allowed="float32 or uint8",
        )
    return np.dtype(f"{_KINDS[kind.code]}{kind.bits // 8}")


def _in_order(shape: tuple[int, ...], strides: Sequence[int] | None, step: int) -> bool:
    """Whether strides are those of C order; an axis of one element may have any."""
    if strides is None:
        return True
    for size, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


_keys = itertools.count(1)
_held: dict[int, tuple[object, ...]] = {}  # what capsules out there point to


def _make_deleter(struct: Any, held: dict[int, tuple[object, ...]] = _held) -> Callable[[Any], None]:
    def delete(address: int) -> None:
        held.pop(struct.from_address(address).context, None)

    return delete


_delete = {name: _DELETER(_make_deleter(struct)) for name, struct in _STRUCTS.items()}


def _make_destructor(
    names: tuple[bytes, ...] = (_PLAIN, _VERSIONED),
    is_capsule: Callable[[int, bytes], int] = _is_capsule_at,
    pointer: Callable[[int, bytes], int] = _pointer_at,
    delete: dict[bytes, Any] = _delete,
) -> Callable[[Any], None]:
    def destroy(capsule: int) -> None:
        for name in names:  # a consumed one has another name, and its consumer calls the deleter
            if is_capsule(capsule, name):
                delete[name](pointer(capsule, name))

    return destroy


_destroy = _DESTRUCTOR(_make_destructor())
for _immortal in (*_delete.values(), _destroy):  # arrays may be freed while the interpreter goes down
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_immortal))
