"""What an engine takes: every array is checked here, once, against facts that were computed when it was opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import GraphError, InputError
from face3d_trt.runtime import mistakes
from face3d_trt.runtime.dlpack import DeviceView, device_view, memory_of
from face3d_trt.runtime.pieces import ANY_SIZE, Limits, Piece, describe, limits_of, plan_pieces

if TYPE_CHECKING:
    from face3d_trt.engine.profile import Layout
    from face3d_trt.records import ProfileRecord, TensorRecord

SLACK = 1e-3  # how far float pictures may leave 0..1: resampling overshoots by less
_REMEMBERED = 1024  # shapes whose pieces are kept
_LAYOUTS: dict[str, Layout] = {"float32": "float32", "uint8": "uint8"}


class HostImages(NamedTuple):
    """Pictures in host memory that the engine takes.

    Attributes:
        array: As it came; any strides.
        batch: Rows.
        pieces: Its runs.
    """

    array: npt.NDArray[Any]
    batch: int
    pieces: tuple[Piece, ...]


class DeviceImages(NamedTuple):
    """Pictures on the engine's GPU, C-contiguous.

    Attributes:
        view: Where they lie, and what keeps them there.
        batch: Rows.
        pieces: Its runs.
    """

    view: DeviceView
    batch: int
    pieces: tuple[Piece, ...]


class Spec:
    """What one engine takes and gives.

        spec = Spec(loaded.inputs, loaded.outputs, loaded.profiles, device=0)
        images = spec.check(array)                       # HostImages or DeviceImages, or InputError

    Args:
        inputs: Of the plan; exactly one.
        outputs: Of the plan; all dimensions but the batch are fixed.
        profiles: Of the plan; none: any size that `export` allows.
        check: Whether float pictures on the host are searched for NaN and values outside 0..1. One pass over them.
        device: Index of the GPU whose arrays are taken; None: arrays on the host only.

    Attributes:
        limits: The profiles by axis. Whoever narrows them (a memory limit) does so before the first check.

    Raises:
        GraphError: The plan has another number of inputs, or of another kind, than `export` gives a graph.
    """

    def __init__(
        self,
        inputs: Sequence[TensorRecord],
        outputs: Sequence[TensorRecord],
        profiles: Sequence[ProfileRecord] = (),
        *,
        check: bool = True,
        device: int | None = None,
    ) -> None:
        _expect(inputs, outputs)
        self.name = inputs[0].name
        self.layout: Layout = _LAYOUTS[inputs[0].dtype]
        self.dtype = np.dtype(self.layout)
        self.outputs = tuple(outputs)
        self.limits: tuple[Limits, ...] = limits_of(profiles, self.layout) or (ANY_SIZE,)
        self.device = device
        self._rows = {each.name: (each.shape[1:], np.dtype(each.dtype)) for each in outputs}
        self._names = tuple(self._rows)
        self._search = check and self.layout == "float32"
        self._seen: dict[tuple[int, ...], tuple[int, tuple[Piece, ...]]] = {}

    def check(self, images: Any, *, stream: int = 0) -> HostImages | DeviceImages:
        """Hold an array against what the engine takes.

        Args:
            images: Of numpy, or with DLPack or `__cuda_array_interface__`.
            stream: Handle of the CUDA stream that is going to read it, where it lies on a GPU.

        Raises:
            InputError: It does not fit; the message names what does.
        """
        if type(images) is np.ndarray and images.dtype == self.dtype and (known := self._seen.get(images.shape)):
            if self._search:
                self._check_values(images)
            return HostImages(images, known[0], known[1])
        return self._check_slowly(images, stream)

    def choose(self, outputs: Sequence[str] | None) -> tuple[str, ...]:
        """Names of the outputs to compute, in the order asked for; None: all.

        Raises:
            InputError: There is no such output, or none is asked for.
        """
        if outputs is None:
            return self._names
        if isinstance(outputs, str):
            raise InputError(
                f"outputs={outputs!r} is one text",
                allowed="a list of names",
                run=f"engine(images, outputs=[{outputs!r}])",
            )
        asked = tuple(outputs) if isinstance(outputs, Iterable) else (outputs,)
        if not all(isinstance(name, str) for name in asked):
            raise InputError(f"outputs={outputs!r} are no names", allowed=f"a list of {', '.join(self._names)}")
        names = tuple(dict.fromkeys(asked))
        if not names or not set(names) <= set(self._names):
            unknown = ", ".join(repr(name) for name in names if name not in self._names)
            raise InputError(
                f"there is no output {unknown}" if names else "no output is asked for", allowed=", ".join(self._names)
            )
        return names

    def arrays(
        self, names: Sequence[str], batch: int, out: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Host arrays for results: those of `out`, which are checked, and new ones for the rest.

        Args:
            names: From `choose`.
            batch: Rows.
            out: What the caller gave.

        Raises:
            InputError: An array in `out` is not of the result's shape and dtype, C-contiguous and writeable, or none
                is computed under its name.
        """
        if out is not None and not isinstance(out, Mapping):
            raise InputError(
                f"out is {type(out).__name__}",
                allowed="arrays by name",
                run=f"engine(images, out={{{names[0]!r}: array}})",
            )
        if out:
            self._check_out(names, batch, out)
        given = out or {}
        return {
            name: given[name] if name in given else np.empty((batch, *self._rows[name][0]), self._rows[name][1])
            for name in names
        }

    def row_bytes(self, name: str) -> int:
        """Bytes of one row of an output."""
        shape, dtype = self._rows[name]
        return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

    def shape(self, batch: int, height: int | None = None, width: int | None = None) -> tuple[int, ...]:
        """Shape of the input; without a size, that of the first profile's opt."""
        height, width = height or self.limits[0].height[1], width or self.limits[0].width[1]
        return (batch, 3, height, width) if self.layout == "float32" else (batch, height, width, 3)

    @property
    def takes(self) -> str:
        """The input in words."""
        if self.layout == "float32":
            form = "(batch, 3, height, width) float32 RGB from 0 to 1"
        else:
            form = "(batch, height, width, 3) uint8 RGB"
        return f"{form}; {describe(self.limits)}; larger batches are cut"

    def _check_slowly(self, images: Any, stream: int) -> HostImages | DeviceImages:
        """An array of a shape not seen before, a wrong one, or one of another library."""
        if error := mistakes.not_what_lies_there(images, self.takes):
            raise error
        place = "host" if isinstance(images, np.ndarray) else memory_of(images)
        if place == "host":
            array = images if isinstance(images, np.ndarray) else mistakes.to_numpy(images)
            batch, pieces = self._fit(array.shape, array.dtype)
            if self._search:
                self._check_values(array)
            return HostImages(array, batch, pieces)
        if place == "gpu":
            return self._check_device(images, stream)
        raise mistakes.not_an_array(images, place, self.takes)

    def _check_device(self, images: Any, stream: int) -> DeviceImages:
        if self.device is None:
            raise mistakes.on_a_gpu(self.takes)
        view = device_view(images, stream)
        if view.device is not None and view.device != self.device:
            raise mistakes.on_another_gpu(view.device, self.device)
        batch, pieces = self._fit(view.shape, view.dtype)
        if not view.contiguous:
            raise mistakes.not_contiguous(view.shape)
        return DeviceImages(view, batch, pieces)

    def _fit(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, tuple[Piece, ...]]:
        """Batch and pieces of an array of that shape and dtype."""
        if dtype != self.dtype:
            raise mistakes.wrong_dtype(shape, dtype, self.layout, self.takes)
        if known := self._seen.get(shape):
            return known
        if error := mistakes.wrong_shape(shape, self.layout, self.takes):
            raise error
        height, width = shape[2:] if self.layout == "float32" else shape[1:3]
        pieces = plan_pieces(shape[0], height, width, self.limits)
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[shape] = found = (shape[0], pieces)
        return found

    def _check_values(self, images: npt.NDArray[Any]) -> None:
        """Refuse NaN, infinities and what is not 0..1. Row by row, so that both passes find a row in the cache."""
        for row in images if images.strides[0] else images[:1]:  # rows that are one and the same: np.broadcast_to
            if not (row.min() >= -SLACK and row.max() <= 1 + SLACK):  # False for NaN
                raise mistakes.wrong_values(images, SLACK)

    def _check_out(self, names: Sequence[str], batch: int, out: Mapping[str, npt.NDArray[Any]]) -> None:
        for name, array in out.items():
            if name not in names:
                raise InputError(f"out has {name!r}, which is not computed", allowed=", ".join(names))
            shape, dtype = (batch, *self._rows[name][0]), self._rows[name][1]
            found = mistakes.unfit_to_write(array, shape, dtype)
            if found:
                raise InputError(
                    f"out[{name!r}] {found}",
                    allowed=f"a C-contiguous, writeable numpy array of shape {shape} and dtype {dtype}",
                    run=f"np.empty({shape}, np.{dtype})",
                )


def _expect(inputs: Sequence[TensorRecord], outputs: Sequence[TensorRecord]) -> None:
    problem = None
    if len(inputs) != 1:
        problem = f"it has the inputs {', '.join(each.name for each in inputs) or 'none'}"
    elif inputs[0].dtype not in _LAYOUTS or len(inputs[0].shape) != 4:
        problem = f"its input is {inputs[0].dtype} of {len(inputs[0].shape)} dimensions"
    elif unknown := [each.name for each in outputs if not each.shape or min(each.shape[1:], default=1) < 1]:
        problem = f"the size of its output {unknown[0]} is not fixed"
    if problem:
        raise GraphError(
            f"this is no network of face3d-trt: {problem}",
            allowed="one input: (batch, 3, height, width) float32, or (batch, height, width, 3) uint8",
            run="face3d-trt export, then face3d-trt build",
        )
