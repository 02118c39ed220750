"""Execution contexts, and which shapes have one of their own together with CUDA graphs.

Why graphs and contexts are as they are. A CUDA graph holds the parameters of every kernel: addresses of input, outputs,
weights, TensorRT's scratch and its persistent memory, and numbers that followed from the shape. It does not hold what
TensorRT keeps on the GPU for a context and rewrites when the context's shape changes, nor memory that it then allocates
anew. So a graph that was captured from a context which later ran another shape can give wrong rows
(NVIDIA/TensorRT#3798, #2603), and NVIDIA's guide advises one context per graph. Hence:

* A shape whose runs are captured has an execution context of its own, which never sees another shape. It has run once,
  plainly, before the capture, as TensorRT finishes its set-up for a shape in the first run.
* Input and outputs lie in a slot's buffers, so each slot has a graph of its own. When a buffer moves, its graphs go.
* All contexts of a lane share one scratch memory, whose address never changes. They may, because everything that runs
  is put on the lane's one stream `run`, graphs too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from face3d_trt.errors import Face3DError

if TYPE_CHECKING:
    from face3d_trt.engine.loaded import PlanContext
    from face3d_trt.runtime.graphs import Graph, GraphMaker
    from face3d_trt.runtime.resources import Stream
    from face3d_trt.runtime.slots import Address, Bucket, Place

PLAIN_RUNS = 2  # of a shape before it is worth a context of its own
BUCKETS = 16  # shapes that have one
STALE = 1000  # runs of a lane after which a shape that was not among them may lose it

log = logging.getLogger("face3d_trt")


class Bound:
    """An execution context, and what was last set in it: TensorRT takes its time over settings that change nothing."""

    def __init__(self, context: PlanContext, name: str) -> None:
        self.context, self._name = context, name
        self._shape: tuple[int, ...] | None = None
        self._addresses: tuple[Address, ...] = ()
        self._known: dict[str, int] = {}

    def set_shape(self, shape: tuple[int, ...]) -> None:
        """Shape of the pictures from now on."""
        if shape != self._shape:
            self._shape = None
            self.context.set_input_shape(self._name, shape)
            self._shape = shape

    def run(self, shape: tuple[int, ...], addresses: tuple[Address, ...], stream: int) -> None:
        """Put a run on a stream."""
        self.set_shape(shape)
        if addresses is not self._addresses:
            for name, address in addresses:
                if self._known.get(name) != address:
                    self.context.set_address(name, address)
                    self._known[name] = address
            self._addresses = addresses
        self.context.enqueue(stream)


class Shelf:
    """The graphs of a lane. Everything here happens under the lane's lock.

    Args:
        maker: What captures.
        make_context: From a profile to a new execution context.
        ring: Slots of the lane.

    Attributes:
        buckets: Shapes that have a context of their own.
    """

    def __init__(self, maker: GraphMaker, make_context: Callable[[int], Bound], ring: int) -> None:
        self._maker: GraphMaker | None = maker
        self._make_context = make_context
        self._most = 2 * ring  # graphs of a shape: two choices of outputs for each slot
        self.buckets: list[Bucket] = []

    def graph(self, place: Place, stream: Stream, work: Callable[[Place, Bound], None]) -> Graph | None:
        """Capture a place's graph, if it is time; None: run plainly, in `bucket.context` where it has one.

        Args:
            place: One without a graph.
            stream: That `work` puts a run on.
            work: Upload, run and downloads.
        """
        bucket = place.bucket
        if self._maker is None or bucket.refused is not None:
            return None
        bucket.runs += 1
        if bucket.runs <= PLAIN_RUNS or len(bucket.places) >= self._most:
            return None
        context = bucket.context
        if context is None:
            self._give_context(bucket, stream)
            return None  # the first run of a context cannot be captured
        try:
            place.graph = self._maker.capture(stream.handle, lambda: work(place, context))
            bucket.places.add(place)
        except Face3DError as error:
            bucket.refused = error.problem
            log.debug("no CUDA graph for input shape %s: %s", bucket.input.shape, error.problem)
        return place.graph

    def close(self) -> None:
        """Destroy graphs and contexts; nothing may be in flight."""
        for bucket in tuple(self.buckets):
            self._take_context(bucket)

    def _give_context(self, bucket: Bucket, stream: Stream) -> None:
        """A context of its own, if there is room for one: the one that was not used for longest gives way."""
        if len(self.buckets) >= BUCKETS:
            oldest = min(self.buckets, key=lambda each: each.used)
            if bucket.used - oldest.used < STALE:
                return
            stream.synchronize()
            self._take_context(oldest)
        try:
            bucket.context = self._make_context(bucket.profile)
        except Face3DError as error:  # a plan that lets one context alone have a profile; or memory is short
            self._maker = None
            log.debug("no CUDA graphs: %s", error.problem)
        else:
            self.buckets.append(bucket)

    def _take_context(self, bucket: Bucket) -> None:
        for place in tuple(bucket.places):
            place.drop_graph()
        self.buckets.remove(bucket)
        context, bucket.context, bucket.runs = bucket.context, None, 0
        if context is not None:
            context.context.close()
