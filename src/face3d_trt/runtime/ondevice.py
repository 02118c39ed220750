"""Calls whose pictures come from the GPU, or whose results stay there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from face3d_trt.errors import InputError
from face3d_trt.runtime.devicearray import DeviceArray
from face3d_trt.runtime.dlpack import LEGACY_STREAM, DeviceView, device_view, memory_of
from face3d_trt.runtime.flights import Array, Batch
from face3d_trt.runtime.inputs import DeviceImages, HostImages, Spec

if TYPE_CHECKING:
    from face3d_trt.runtime.cuda import Device
    from face3d_trt.runtime.loans import Loans
    from face3d_trt.runtime.resources import Stream


class OnDevice:
    """Orders an engine's runs with the streams of the caller, without waiting.

    Args:
        device: The GPU.
        spec: What the engine takes.
        loans: Where memory for results comes from.
        inlet: A stream that a producer of DLPack is told to make wait, where the caller names none.
    """

    def __init__(self, device: Device, spec: Spec, loans: Loans, inlet: Stream) -> None:
        self._device, self._spec, self._loans, self._inlet = device, spec, loans, inlet

    def check(self, images: Any, caller: int | None) -> HostImages | DeviceImages:
        """Pictures held against what the engine takes; those on the GPU are ordered before `caller` or the inlet."""
        with self._device.current():
            return self._spec.check(images, stream=self._inlet.handle if caller is None else caller)

    def to_host(
        self, checked: DeviceImages, results: dict[str, Array], names: tuple[str, ...], caller: int | None
    ) -> Batch:
        """A batch from the GPU to the host."""
        batch = Batch(checked.pieces, checked.view.shape, None, results, names)
        self._read(batch, checked.view, caller)
        return batch

    def to_device(
        self,
        checked: HostImages | DeviceImages,
        names: tuple[str, ...],
        out: Mapping[str, Any],
        caller: int | None,
        direct: bool,
    ) -> tuple[Batch, dict[str, Any]]:
        """A batch whose results stay on the GPU, and those results."""
        if isinstance(checked, HostImages):
            batch = Batch(checked.pieces, checked.array.shape, checked.array, {}, (), direct)
            batch.after = LEGACY_STREAM if caller is None else caller
        else:
            batch = Batch(checked.pieces, checked.view.shape, None, {}, ())
            self._read(batch, checked.view, caller)
            ready = LEGACY_STREAM if checked.view.ready is None else checked.view.ready
            batch.after = ready if caller is None else caller
        views = self._writable(names, checked.batch, out, caller)
        batch.before += tuple(each.ready for each in views.values() if each.ready is not None)
        if views:
            batch.before += (batch.after, self._inlet.handle)
        results: dict[str, Any] = {}
        batch.targets = {}
        with self._device.current():
            for each in self._spec.outputs:
                if each.name in names:
                    row = self._spec.row_bytes(each.name)
                    if each.name in views:
                        results[each.name] = out[each.name]
                        address = views[each.name].address
                    else:
                        loan = self._loans.on_device(checked.batch * row, batch.after)
                        address, shape = loan.memory.address, (checked.batch, *each.shape[1:])
                        results[each.name] = DeviceArray(address, shape, np.dtype(each.dtype), loan)
                    batch.targets[each.name] = (address, row)
        batch.before = tuple(dict.fromkeys(batch.before))
        batch.keep = (batch.keep, views, tuple(results.values()))
        return batch, {name: results[name] for name in names}

    def _read(self, batch: Batch, view: DeviceView, caller: int | None) -> None:
        batch.source = view.address
        batch.source_row = int(np.prod(view.shape[1:], dtype=np.int64)) * view.dtype.itemsize
        batch.before = (self._inlet.handle if caller is None else caller,)
        if view.ready is not None:
            batch.before += (view.ready,)
        batch.keep = view

    def _writable(
        self, names: tuple[str, ...], batch: int, out: Mapping[str, Any], caller: int | None
    ) -> dict[str, DeviceView]:
        """The caller's arrays that results go into."""
        records = {each.name: each for each in self._spec.outputs if each.name in names}
        views = {}
        for name, array in out.items():
            if name not in records:
                raise InputError(f"out has {name!r}, which is not computed", allowed=", ".join(names))
            shape, dtype = (batch, *records[name].shape[1:]), np.dtype(records[name].dtype)
            allowed = f"a C-contiguous array of shape {shape} and dtype {dtype} on GPU {self._device.index}"
            if memory_of(array) != "gpu":
                raise InputError(f"out[{name!r}] does not lie on a GPU, and to='device' writes there", allowed=allowed)
            with self._device.current():
                view = device_view(array, self._inlet.handle if caller is None else caller)
            found = f"{view.dtype} of shape {view.shape} on GPU {view.device}"
            fits = (view.shape, view.dtype, view.contiguous) == (shape, dtype, True)
            if not fits or view.device not in (None, self._device.index):
                raise InputError(f"out[{name!r}] is {found}, contiguous: {view.contiguous}", allowed=allowed)
            views[name] = view
        return views
