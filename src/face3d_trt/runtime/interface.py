"""The one interface of an engine. Services program against it; which engine is behind it is `open_engine`'s matter."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy.typing as npt

from face3d_trt.errors import EngineError, InputError
from face3d_trt.runtime.options import check_number

if TYPE_CHECKING:
    from face3d_trt.records import Manifest, ModelInfo, ProfileRecord, TensorRecord

HostArray = npt.NDArray[Any]
HostResults = dict[str, HostArray]
E = TypeVar("E", bound="FaceEngine")


class FaceEngine(ABC):
    """A face reconstruction network, ready to run: aligned crops in, arrays by name out.

        with open_engine("engines/face3d_resnet50.fp16.plan") as engine:
            result = engine(images)                   # images: (batch, 3, 224, 224) float32 RGB, 0 to 1
            result["coeffs"]                          # (batch, 257) float32

            futures = [engine.submit(each) for each in batches]      # copies and compute overlap
            for result in engine.map(batches):                       # the same for a stream of any length
                ...

    One engine serves any number of threads. It does not survive a fork: open it in the process that uses it.

    What every method takes as `images` is an array of this very dtype and layout, whichever the plan was exported with
    (`engine.inputs[0]`): (batch, 3, height, width) float32 RGB from 0 to 1, or (batch, height, width, 3) uint8 RGB. One
    picture alone is `picture[None]`. Numpy arrays and whatever speaks DLPack on the host (a CPU tensor of torch) are
    taken by every engine; arrays on a GPU by `Engine` only. A batch above the largest profile is cut into pieces, in
    order. Nothing is padded, converted or resized.

    Every method that runs raises:
        InputError: An array that does not fit; the message names what does. Checked before anything runs.
        EngineError: The engine is closed, was opened in another process, or failed.

    Attributes:
        backend: What computes, for logs: "TensorRT 8.6.0 on NVIDIA H200 (9.0)", "ONNX Runtime 1.32.0 on the CPU".
        inputs: The input; -1 is a dynamic dimension.
        outputs: Likewise, in the plan's order.
        profiles: Input shapes that the plan was built for; empty where the graph has no such limits.
        model: Facts of the exported model: alignment template, source, kind of weights.
        manifest: What `build` recorded about the plan; None for an ONNX file that no plan was opened for.
        depth: How many `submit`s of one piece are in flight before the next one waits.
    """

    backend: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    profiles: tuple[ProfileRecord, ...]
    model: ModelInfo
    manifest: Manifest | None
    depth: int

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False

    @abstractmethod
    def __call__(
        self,
        images: Any,
        *,
        outputs: Sequence[str] | None = None,
        out: Mapping[str, HostArray] | None = None,
        to: Literal["host", "device"] = "host",
        stream: Any = None,
    ) -> dict[str, Any]:
        """Run a batch in the caller's thread and wait for it.

            engine(images)["coeffs"]
            engine(images, outputs=["coeffs"])                       # what is not asked for is not copied
            engine(images, out={"coeffs": rows[64:128]})             # written there; any C-contiguous view
            torch.from_dlpack(engine(tensor, to="device")["coeffs"])  # stays on the GPU

        Args:
            images: See the class.
            outputs: Names to return; None: all of them.
            out: Arrays to write results into, by name: C-contiguous, writeable, of the result's shape and dtype, on the
                GPU with to="device". Names that are missing get a new array.
            to: "host": numpy arrays. "device": DeviceArrays, which speak `__cuda_array_interface__` and DLPack; the
                call returns before they are computed, and who reads them is ordered after that. `Engine` only.
            stream: The caller's CUDA stream, for `images` on the GPU and for to="device": a handle, or a stream of
                torch, CuPy, pycuda or cuda-python. None: what `images` says of itself.

        Returns:
            By name, with the batch as first axis; float32.
        """

    @abstractmethod
    def submit(
        self, images: Any, *, outputs: Sequence[str] | None = None, out: Mapping[str, HostArray] | None = None
    ) -> Future[HostResults]:
        """Run a batch in the background.

            future = engine.submit(images)
            result = future.result()

        What is wrong with the arguments is raised here, what goes wrong while it runs by the future, which is done when
        nothing of the batch is in flight any more: `out` and a pinned `images` are the caller's again. When `depth`
        batches are in flight it waits for room, so a slow engine slows the writer and memory stays bounded; results
        that nobody has fetched hold no room.

        Args:
            images: See the class. Copied before `submit` returns, or left alone: see `pinned`.
            outputs: As for a call.
            out: As for a call. Not to be touched before the future is done.

        Returns:
            A future of what a call returns.
        """

    @abstractmethod
    def pinned(self, batch: int) -> HostArray:
        """A new array for `batch` pictures, of the profile's usual size, that needs no copy on the host.

            images = engine.pinned(32)
            images[:] = crops
            engine.submit(images)

        An engine on a GPU reads it where it lies. So it is not to be changed between `submit` and its result. Use one
        for each batch in flight, again and again: page-locked memory is dear.

        Args:
            batch: Rows.
        """

    @abstractmethod
    def warm_up(self, batches: int | Iterable[int] = (1,)) -> None:
        """Do beforehand what the first calls of these batch sizes would do: buffers, contexts, CUDA graphs.

        Args:
            batches: Rows of the batches to come: a number, or some.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish what is in flight, then free everything. A second call does nothing."""

    def map(
        self, batches: Iterable[Any], *, outputs: Sequence[str] | None = None, ahead: int | None = None
    ) -> Iterator[HostResults]:
        """Run a stream of batches, overlapped, and yield the results in order.

            for result in engine.map(batches()):
                writer.write(result["coeffs"])

        The next batch is pulled only when there is room, so neither a slow reader nor an endless stream fills memory.
        An error, of a batch or of the iterable, comes in its place: results of the batches before it come first. Who
        leaves the loop early waits, as the generator is closed, for what is in flight.

        Args:
            batches: Arrays as for a call.
            outputs: As for a call.
            ahead: How many batches are in flight; None: as many as the engine overlaps.
        """
        self._check_usable()
        ahead = self.depth if ahead is None else check_number("map: ahead", ahead, "a number of batches, or None")
        try:
            source = iter(batches)
        except TypeError:
            raise InputError(
                f"map: batches is {type(batches).__name__}",
                allowed="an iterable of batches",
                run="engine.map([images])",
            ) from None
        return self._stream(source, outputs, ahead)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __enter__(self: E) -> E:
        self._check_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.backend}{', closed' if self._closed else ''}>"

    def _check_usable(self) -> None:
        """Refuse work on a closed engine, or in a process that is not the one that opened it."""
        if self._closed:
            raise EngineError(
                "this engine is closed",
                allowed="calls between opening it and close(), or inside its with block",
                run="engine = open_engine(PLAN)    # opens it again",
            )
        if self._forked:
            raise EngineError(
                f"this engine was opened in process {self._pid}, and this is its fork {os.getpid()}: neither CUDA nor "
                "threads survive a fork",
                allowed="an engine that is opened in the process that uses it",
                run="engine = open_engine(PLAN)    # in the child; multiprocessing: 'spawn', gunicorn: in post_fork",
            )

    @property
    def _forked(self) -> bool:
        return os.getpid() != self._pid

    def _stream(self, batches: Iterator[Any], outputs: Sequence[str] | None, ahead: int) -> Iterator[HostResults]:
        pending: deque[Future[HostResults]] = deque()
        try:
            more = True
            while more or pending:
                while more and len(pending) < ahead and not (pending and pending[0].done()):
                    future, more = self._next(batches, outputs)
                    if future is not None:
                        pending.append(future)
                if pending:
                    yield pending.popleft().result()
        finally:
            for future in pending:  # the reader has left: what has not begun need not
                if not future.cancel():
                    self._await(future)  # it may read arrays that the reader now changes

    def _await(self, future: Future[HostResults]) -> None:
        """Wait until a future is done, well or not."""
        wait((future,))

    def _next(self, batches: Iterator[Any], outputs: Sequence[str] | None) -> tuple[Future[HostResults] | None, bool]:
        """The next batch on its way, or its error in a future; and whether to go on."""
        try:
            return self.submit(next(batches), outputs=outputs), True
        except StopIteration:
            return None, False
        except Exception as error:
            failed: Future[HostResults] = Future()
            failed.set_exception(error)
            return failed, False
