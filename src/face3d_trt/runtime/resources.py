"""What is made on a device: memory, streams, events. Thin shells around pycuda's objects, which cuda.py makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from face3d_trt.runtime.cuda import Device


class Resource:
    """What is made on a device and freed explicitly, with the context current."""

    __slots__ = ("__weakref__", "_device", "_raw", "lent")

    def __init__(self, device: Device, raw: Any) -> None:
        self._device, self._raw, self.lent = device, raw, False
        device.remember(self)

    @property
    def freed(self) -> bool:
        """Whether it is gone; at exit everything is, whoever still holds it."""
        return self._raw is None

    def free(self) -> None:
        """Give it back; nothing happens the second time."""
        if self._raw is None or self._device.dead:  # the dead device keeps it
            return
        raw, self._raw = self._raw, None
        self._free(raw)
        del raw
        self._device.forget(self)

    def _free(self, raw: Any) -> None:
        """Streams and events: pycuda frees them as the last reference goes."""


class DeviceMemory(Resource):
    """Memory on the GPU.

    Attributes:
        address: Of its first byte.
        nbytes: Its size.
    """

    __slots__ = ("address", "nbytes")

    def __init__(self, device: Device, raw: Any, nbytes: int) -> None:
        super().__init__(device, raw)
        self.address, self.nbytes = int(raw), nbytes

    def _free(self, raw: Any) -> None:
        raw.free()


class PinnedMemory(Resource):
    """Page-locked memory of the host.

    Attributes:
        array: (nbytes,) uint8. Views of it must not be used after `free`.
        address: Of its first byte.
        nbytes: Its size.
    """

    __slots__ = ("address", "array", "nbytes")

    def __init__(self, device: Device, raw: npt.NDArray[np.uint8], nbytes: int) -> None:
        super().__init__(device, raw.base)
        self.array = raw[:nbytes]
        self.address, self.nbytes = raw.ctypes.data, nbytes

    def _free(self, raw: Any) -> None:
        self.array = np.empty(0, np.uint8)
        raw.free()


class Stream(Resource):
    """A queue of work on the GPU.

    Attributes:
        handle: CUDA's own.
        queue: pycuda's own.
    """

    __slots__ = ("handle", "queue")

    def __init__(self, device: Device, raw: Any) -> None:
        super().__init__(device, raw)
        self.handle, self.queue = int(raw.handle), raw

    def synchronize(self) -> None:
        """Wait for everything on it."""
        self.queue.synchronize()

    def close(self) -> None:
        """The same as `free`."""
        self.free()

    def wait(self, event: Event) -> None:
        """Let what comes next on it wait for `event` as it was recorded last."""
        self.queue.wait_for_event(event.mark)

    def _free(self, raw: Any) -> None:
        self.queue = None


class Event(Resource):
    """A mark in a stream.

    Attributes:
        mark: pycuda's own.
    """

    __slots__ = ("mark",)

    def __init__(self, device: Device, raw: Any) -> None:
        super().__init__(device, raw)
        self.mark = raw

    def record(self, stream: Stream) -> None:
        """Put it at the end of a stream."""
        self.mark.record(stream.queue)

    def synchronize(self) -> None:
        """Wait until the GPU has come to it; at once if it was never recorded."""
        self.mark.synchronize()

    def ms_since(self, earlier: Event) -> float:
        """Milliseconds on the GPU from `earlier` to this one; both are timed, and the GPU has come to them."""
        return float(earlier.mark.time_till(self.mark))

    def query(self) -> bool:
        """Whether the GPU has come to it."""
        return bool(self.mark.query())

    def _free(self, raw: Any) -> None:
        self.mark = None
