"""One execution context's worth of running: streams, contexts, and the order in which runs are put on the GPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import EngineError, Face3DError
from face3d_trt.runtime.shelf import Bound, Shelf
from face3d_trt.runtime.slots import Address, Bucket, Place, Slot, Tensor

if TYPE_CHECKING:
    from face3d_trt.engine.loaded import LoadedPlan
    from face3d_trt.runtime.cuda import Device
    from face3d_trt.runtime.graphs import GraphMaker
    from face3d_trt.runtime.inputs import Spec
    from face3d_trt.runtime.resources import Event

SMALL_ROWS = 16  # up to here launches cost more than a copy that is not overlapped
SMALL_BYTES = 4 << 20  # of pictures, likewise: 70 µs at 55 GB/s
ALIGNMENT = 256  # of addresses that TensorRT takes
_SHAPES = 1024  # shapes that a lane remembers


@dataclass(frozen=True)
class Away:
    """Ends of a run that are not the slot's own buffers.

    Attributes:
        images: Address of the pictures on the GPU; None: they come from the host.
        results: Output's name to the address on the GPU that it goes to.
        before: Streams whose work must be done before it begins.
        after: Stream whose work must not begin before it is done; None: the host waits.
    """

    images: int | None = None
    results: Mapping[str, int] | None = None
    before: tuple[int, ...] = ()
    after: int | None = None


_AT_HOME = Away()


class Lane:
    """Runs one after the other on the GPU; copies of the next and of the last one overlap with them.

    Made, used and closed with the device's context current.

    Args:
        device: The GPU.
        plan: The engine.
        spec: What it takes.
        graphs: What captures; None: no graphs.
        ring: Number of slots.

    Attributes:
        lock: Held while a run is put on the streams.
        slots: Its slots.
    """

    def __init__(self, device: Device, plan: LoadedPlan, spec: Spec, graphs: GraphMaker | None, ring: int) -> None:
        self.device, self._plan, self._spec = device, plan, spec
        self.up, self.run, self.down = device.stream(), device.stream(), device.stream()
        self.lock = threading.Lock()
        scratch = plan.scratch_bytes()
        self._scratch = device.alloc(scratch) if scratch else None
        self._contexts: dict[int, Bound] = {}
        self._buckets: dict[tuple[int, tuple[int, ...]], Bucket] = {}
        self._shelf = Shelf(graphs, self._make_context, ring) if graphs else None
        self._runs = 0
        self.slots = tuple(Slot(device, self) for _ in range(ring))

    def prepare(self, profile: int) -> None:
        """Make the execution context of a profile.

        Raises:
            EngineError: TensorRT refuses: the profile belongs to another context, or memory is short.
        """
        with self.lock:
            self._context(profile)

    def bucket(self, profile: int, shape: tuple[int, ...]) -> Bucket:
        """The runs of one profile and shape."""
        found = self._buckets.get((profile, shape))
        if found is None:
            with self.lock:
                found = self._make_bucket(profile, shape)
                if len(self._buckets) >= _SHAPES:
                    kept = self._shelf.buckets if self._shelf else ()
                    self._buckets = {(each.profile, each.input.shape): each for each in kept}
                self._buckets[profile, shape] = found
        return found

    def start(self, place: Place, done: Event) -> None:
        """Run what lies in the page-locked pictures of a small bucket; `done` is recorded behind the downloads."""
        with self.lock:
            self._runs = place.bucket.used = self._runs + 1
            graph = place.graph
            if graph is None and self._shelf is not None:
                graph = self._shelf.graph(place, self.run, self._straight)
            if graph is not None:
                graph.launch()
            else:
                self._straight(place, place.bucket.context or self._context(place.bucket.profile))
            done.record(self.run)

    def start_overlapped(
        self, place: Place, done: Event, images: npt.NDArray[Any] | None, away: Away = _AT_HOME
    ) -> None:
        """Run with copies on streams of their own.

        Args:
            place: Views of the slot.
            done: Recorded at the end.
            images: Pictures in page-locked memory; None: `away.images`.
            away: Where pictures and results are instead of in the slot.
        """
        device, slot, bucket = self.device, place.slot, place.bucket
        with self.lock:
            self._runs = bucket.used = self._runs + 1
            if images is not None:
                device.copy_in(place.addresses[0][1], images, self.up)
                slot.uploaded.record(self.up)
                self.run.wait(slot.uploaded)
            for handle in away.before:
                device.order(handle, self.run.handle)
            addresses = place.addresses if away is _AT_HOME else self._redirect(place, away)
            self._context(bucket.profile).run(bucket.input.shape, addresses, self.run.handle)
            if away.results:
                self._deliver(place, addresses, away.results)
            last = self.run
            if place.downloads:
                slot.ran.record(self.run)
                self.down.wait(slot.ran)
                for _, view, address in place.downloads:
                    device.copy_out(view, address, self.down)
                last = self.down
            done.record(last)
            if away.after is not None:
                device.order(last.handle, away.after)

    def settle(self) -> None:
        """Wait for everything, after an error; a second one is not raised, as the first says more."""
        with suppress(Face3DError), self.device.current():
            self.synchronize()

    def synchronize(self) -> None:
        """Wait for everything, with the context current."""
        for stream in (self.up, self.run, self.down):
            stream.synchronize()

    def close(self) -> None:
        """Destroy graphs and contexts; nothing may be in flight. The device frees the rest."""
        with self.lock:
            for slot in self.slots:
                slot.drop_places()
            if self._shelf is not None:
                self._shelf.close()
            for bound in self._contexts.values():
                bound.context.close()
            self._contexts.clear()
            self._buckets.clear()

    def _straight(self, place: Place, bound: Bound) -> None:
        """Upload, run and downloads on one stream; what a graph captures."""
        device, run = self.device, self.run
        device.copy_in(place.addresses[0][1], place.images, run)
        bound.run(place.bucket.input.shape, place.addresses, run.handle)
        for _, view, address in place.downloads:
            device.copy_out(view, address, run)

    def _redirect(self, place: Place, away: Away) -> tuple[Address, ...]:
        """The run's addresses; what TensorRT cannot take where it lies goes through the slot."""
        device, bucket = self.device, place.bucket
        addresses = dict(place.addresses)
        if away.images is not None:
            if away.images % ALIGNMENT:
                device.copy_on(addresses[bucket.input.name], away.images, bucket.input.nbytes, self.run)
            else:
                addresses[bucket.input.name] = away.images
        addresses |= {name: address for name, address in (away.results or {}).items() if address % ALIGNMENT == 0}
        return tuple(addresses.items())

    def _deliver(self, place: Place, addresses: Sequence[Address], results: Mapping[str, int]) -> None:
        written = dict(addresses)
        for name, address in results.items():
            if written[name] != address:
                self.device.copy_on(address, written[name], place.bucket.outputs[name].nbytes, self.run)

    def _context(self, profile: int) -> Bound:
        found = self._contexts.get(profile)
        if found is None:
            found = self._contexts[profile] = self._make_context(profile)
        return found

    def _make_context(self, profile: int) -> Bound:
        scratch = self._scratch.address if self._scratch else None
        return Bound(self._plan.context(profile, stream=self.run.handle, scratch=scratch), self._spec.name)

    def _make_bucket(self, profile: int, shape: tuple[int, ...]) -> Bucket:
        """Ask TensorRT for the outputs' shapes: they are what it is going to write."""
        bound = self._context(profile)
        bound.set_shape(shape)
        most = next(each.batch[2] for each in self._spec.limits if each.profile == profile)
        rows = max(shape[0], min(SMALL_ROWS, most))
        images = _tensor(self._spec.name, shape, self._spec.dtype, rows)
        outputs = [
            _tensor(each.name, bound.context.shape(each.name), np.dtype(each.dtype), rows)
            for each in self._spec.outputs
        ]
        for each in outputs:
            if each.shape[0] != shape[0]:
                raise EngineError(f"the engine gives {each.name} of shape {each.shape} for pictures of shape {shape}")
        small = shape[0] <= SMALL_ROWS and images.nbytes <= SMALL_BYTES
        return Bucket(profile, images, outputs, small=small)


def _tensor(name: str, shape: tuple[int, ...], dtype: Any, rows: int) -> Tensor:
    tensor = Tensor(name, shape, dtype, 0)
    return tensor._replace(reserve=tensor.nbytes // shape[0] * rows)
