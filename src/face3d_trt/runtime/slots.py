"""Room for one run: buffers on the GPU and in page-locked memory, and who has which."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import EngineError

if TYPE_CHECKING:
    from face3d_trt.runtime.cuda import Device
    from face3d_trt.runtime.graphs import Graph
    from face3d_trt.runtime.lane import Lane
    from face3d_trt.runtime.resources import DeviceMemory, PinnedMemory
    from face3d_trt.runtime.shelf import Bound

Address = tuple[str, int]
_VIEWS = 1024  # places that a slot remembers
_turns = itertools.count(1)


class Tensor(NamedTuple):
    """An input or output of one run.

    Attributes:
        name: In the plan.
        shape: With the rows as first axis.
        dtype: Of an element.
        reserve: Bytes that its buffer gets: `nbytes` or more, so that it need not grow for every small batch.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reserve: int

    @property
    def nbytes(self) -> int:
        """Its size."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Bucket:
    """All runs of a lane with one profile and one input shape.

    Attributes:
        profile: Index of the optimization profile.
        input: The pictures.
        outputs: By name, in the plan's order.
        small: Whether it runs on one stream, as a CUDA graph where possible, and not overlapped on three.
        runs: How many there were.
        used: The lane's count of runs when the last one was.
        context: An execution context that runs this shape alone; None: the profile's.
        places: Those of its places that have a graph.
        refused: Why there are no graphs of it; None: nothing is known against them.
    """

    def __init__(self, profile: int, images: Tensor, outputs: Sequence[Tensor], *, small: bool) -> None:
        self.profile, self.input, self.small = profile, images, small
        self.outputs = {each.name: each for each in outputs}
        self.runs = self.used = 0
        self.context: Bound | None = None
        self.places: set[Place] = set()
        self.refused: str | None = None


class Place:
    """A bucket's views of a slot's buffers; valid until one of them grows.

    Attributes:
        slot: Whose buffers.
        bucket: Whose shapes.
        addresses: Of input and outputs on the GPU, for TensorRT.
        images: Page-locked, for the pictures; None where they were never copied by the host.
        downloads: (name, page-locked view, address) of the outputs that are wanted on the host.
        graph: Upload, run and downloads, captured; None: not yet.
    """

    __slots__ = ("addresses", "bucket", "downloads", "graph", "images", "slot")

    def __init__(
        self,
        slot: Slot,
        bucket: Bucket,
        addresses: tuple[Address, ...],
        images: npt.NDArray[Any] | None,
        downloads: tuple[tuple[str, npt.NDArray[Any], int], ...],
    ) -> None:
        self.slot, self.bucket, self.addresses = slot, bucket, addresses
        self.images, self.downloads = images, downloads
        self.graph: Graph | None = None

    def drop_graph(self) -> None:
        """Destroy the graph, if there is one."""
        graph, self.graph = self.graph, None
        self.bucket.places.discard(self)
        if graph is not None:
            graph.close()


class Buffer:
    """Memory for one tensor of a slot, on the GPU and, where the host takes part, page-locked; grows, never shrinks."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory: DeviceMemory | None = None
        self._pinned: PinnedMemory | None = None

    def holds(self, tensor: Tensor, *, host: bool) -> bool:
        """Whether it is large enough already."""
        if self._memory is None or self._memory.nbytes < tensor.nbytes:
            return False
        return not host or (self._pinned is not None and self._pinned.nbytes >= tensor.nbytes)

    def grow(self, tensor: Tensor, *, host: bool) -> None:
        """Make it large enough; nothing may be in flight in it."""
        if self._memory is None or self._memory.nbytes < tensor.nbytes:
            old, self._memory = self._memory, None
            if old is not None:  # first, so that both together never take memory
                old.free()
            self._memory = self._device.alloc(tensor.reserve)
        if host and (self._pinned is None or self._pinned.nbytes < tensor.nbytes):
            last, self._pinned = self._pinned, None
            if last is not None:
                last.free()
            self._pinned = self._device.pinned(tensor.reserve)

    @property
    def address(self) -> int:
        """On the GPU."""
        if self._memory is None:
            raise EngineError("a buffer was used before it was made")
        return self._memory.address

    def view(self, tensor: Tensor) -> npt.NDArray[Any]:
        """The page-locked memory as an array."""
        if self._pinned is None:
            raise EngineError("a page-locked buffer was used before it was made")
        return self._pinned.array[: tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)


class Slot:
    """Buffers and events of one run at a time.

    Attributes:
        lane: Whose context it runs with.
        uploaded: The pictures are on the GPU.
        ran: The network has run.
        done: Everything is done; who waits for it spins.
        finished: The same; who waits for it sleeps.
        pending: Where nobody waits for its run before the next one: which of all such runs it was; else 0.
        dirty: Whether a run was begun and may still be on its way, with `done` perhaps not recorded behind it.
        keep: What must not be freed while it is pending.
    """

    def __init__(self, device: Device, lane: Lane) -> None:
        self.lane, self._device = lane, device
        self.uploaded, self.ran, self.done = device.event(), device.event(), device.event()
        self.finished = device.event(blocking=True)
        self.pending = 0
        self.dirty = False
        self.keep: object = None
        self._buffers: dict[str, Buffer] = {}
        self._places: dict[tuple[Bucket, tuple[str, ...], bool], Place] = {}

    def settle(self) -> None:
        """Wait for the run that nobody waited for, with the context current."""
        if self.dirty:  # an error or Ctrl-C came between
            self.lane.synchronize()
            self.dirty = False
        if self.pending:
            self.done.synchronize()
            self.pending, self.keep = 0, None

    def leave(self, keep: object) -> None:
        """Let the next run here wait for this one, which is wholly on the GPU, and hold `keep` until then."""
        self.keep, self.pending = keep, next(_turns)
        self.dirty = False

    def place(self, bucket: Bucket, wanted: tuple[str, ...], *, staged: bool = True) -> Place:
        """Views for a run, with the context current; buffers grow where they have to.

        Args:
            bucket: Profile and shapes.
            wanted: Outputs that the host wants.
            staged: Whether the host copies the pictures into page-locked memory.
        """
        key = (bucket, wanted, staged)
        if (found := self._places.get(key)) is None:
            if len(self._places) >= _VIEWS:
                self._places = {key: place for key, place in self._places.items() if place.graph is not None}
            self._fit(bucket, wanted, staged)
            found = self._places[key] = self._views(bucket, wanted, staged)
        return found

    def drop_places(self) -> None:
        """Forget all views, and destroy their graphs. Under the lane's lock."""
        for place in self._places.values():
            place.drop_graph()
        self._places.clear()

    def _fit(self, bucket: Bucket, wanted: tuple[str, ...], staged: bool) -> None:
        needs = [(bucket.input, staged), *((each, each.name in wanted) for each in bucket.outputs.values())]
        buffers = self._buffers
        short = [(t, host) for t, host in needs if t.name not in buffers or not buffers[t.name].holds(t, host=host)]
        if not short:
            return
        with self.lane.lock:  # views and graphs have the addresses that now change
            self.drop_places()
        for tensor, host in short:
            buffers.setdefault(tensor.name, Buffer(self._device)).grow(tensor, host=host)

    def _views(self, bucket: Bucket, wanted: tuple[str, ...], staged: bool) -> Place:
        tensors = (bucket.input, *bucket.outputs.values())
        addresses = tuple((each.name, self._buffers[each.name].address) for each in tensors)
        images = self._buffers[bucket.input.name].view(bucket.input) if staged else None
        chosen = [(self._buffers[name], bucket.outputs[name]) for name in wanted]
        downloads = tuple((each.name, buffer.view(each), buffer.address) for buffer, each in chosen)
        return Place(self, bucket, addresses, images, downloads)
