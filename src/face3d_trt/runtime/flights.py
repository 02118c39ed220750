"""What is on its way: batches, the pieces of them that run, and who fetches the results."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import EngineError
from face3d_trt.runtime.copying import LARGE, copy
from face3d_trt.runtime.lane import Away

if TYPE_CHECKING:
    from face3d_trt.runtime.pieces import Piece
    from face3d_trt.runtime.pool import Lease, SlotPool
    from face3d_trt.runtime.resources import Event
    from face3d_trt.runtime.slots import Place, Slot

Array = npt.NDArray[Any]


@dataclass(slots=True, eq=False)
class Batch:
    """One call or submit.

    Attributes:
        pieces: Its runs.
        shape: Of the pictures.
        images: On the host; None: on the GPU.
        direct: Whether the GPU reads `images` where they lie.
        results: Host arrays that results are written into; of a batch in one piece they may be missing.
        source: Address of pictures on the GPU.
        source_row: Bytes of a picture there.
        targets: Output's name to (address on the GPU, bytes of a row).
        before: Streams whose work must be done before any of it runs.
        after: Stream that waits for the results; None: the host does.
        keep: What must not be freed before it is done.
        future: For a submit.
        left: Pieces that have not landed.
        error: Why one of them failed, the first that did.
    """

    pieces: tuple[Piece, ...]
    shape: tuple[int, ...]
    images: Array | None
    results: dict[str, Array]
    wanted: tuple[str, ...]
    direct: bool = False
    source: int = 0
    source_row: int = 0
    targets: dict[str, tuple[int, int]] | None = None
    before: tuple[int, ...] = ()
    after: int | None = None
    keep: object = None
    future: Future[dict[str, Array]] | None = None
    left: int = 0
    error: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def away(self, piece: Piece) -> Away | None:
        """Ends of a piece on the GPU; None: host to host through the slot."""
        if self.images is not None and self.targets is None:
            return None
        results = {name: address + piece.start * row for name, (address, row) in (self.targets or {}).items()}
        source = self.source + piece.start * self.source_row if self.images is None else None
        return Away(source, results, self.before, self.after)

    def landed(self, error: BaseException | None = None, pieces: int = 1) -> None:
        """Pieces of a submit are done, or failed.

        The last of them completes the future, as until then others may still read and write the caller's arrays.

        Args:
            error: Why they failed; the first one counts.
            pieces: How many; more than one where the rest of a batch is not launched.
        """
        with self.lock:
            self.left -= pieces
            last, self.error = self.left == 0, self.error or error
        if last and self.future is not None:  # without the lock: callbacks run here, and may fetch another piece
            if self.error is None:
                self.future.set_result(self.results)
            else:
                self.future.set_exception(self.error)


class Flight:
    """A piece that runs, or is going to, in the slot of its lease."""

    __slots__ = ("batch", "lease", "piece", "place")

    def __init__(self, batch: Batch, piece: Piece) -> None:
        self.batch, self.piece = batch, piece
        self.lease: Lease | None = None
        self.place: Place | None = None


def launch(slot: Slot, batch: Batch, piece: Piece, *, sleeping: bool = False) -> Place:
    """Put a piece on the GPU.

    Args:
        slot: The caller's until the flight has landed.
        batch: What the piece belongs to.
        piece: Which rows.
        sleeping: Whether who fetches it will sleep until it is done; otherwise he spins.
    """
    try:
        with slot.lane.device.current():
            return _start(slot, batch, piece, slot.finished if sleeping else slot.done)
    except BaseException:
        slot.lane.settle()
        raise


def land(slot: Slot, place: Place | None, batch: Batch, piece: Piece, *, sleeping: bool = False) -> None:
    """Wait for a flight and copy its results to where they belong."""
    with slot.lane.device.current():
        (slot.finished if sleeping else slot.done).synchronize()
    slot.dirty = False
    if place is not None:
        _collect(place, batch, piece)


def fly(slot: Slot, batch: Batch, piece: Piece) -> None:
    """Launch and land in one go, for the shortest way from call to result."""
    try:
        with slot.lane.device.current():
            place = _start(slot, batch, piece, slot.done)
            slot.done.synchronize()
    except BaseException:
        slot.lane.settle()
        raise
    slot.dirty = False
    _collect(place, batch, piece)


def _start(slot: Slot, batch: Batch, piece: Piece, done: Event) -> Place:
    """Copy the pictures where the GPU can read them, and put the run on the lane's streams."""
    slot.settle()
    lane, images = slot.lane, batch.images
    if len(batch.pieces) == 1:
        bucket = lane.bucket(piece.profile, batch.shape)
    else:
        bucket = lane.bucket(piece.profile, (piece.rows, *batch.shape[1:]))
        images = images[piece.start : piece.stop] if images is not None else None
    staged = images is not None and (bucket.small or not batch.direct)
    place = slot.place(bucket, batch.wanted, staged=staged)
    if images is not None and place.images is not None:
        copy(place.images, images)
        images = place.images
    away = batch.away(piece)
    slot.dirty = True
    if away is not None:
        lane.start_overlapped(place, done, images, away)
    elif bucket.small:
        lane.start(place, done)
    else:
        lane.start_overlapped(place, done, images)
    return place


def _collect(place: Place, batch: Batch, piece: Piece) -> None:
    """Results from page-locked memory to the caller's arrays, or to new ones where he gave none."""
    results = batch.results
    whole = len(batch.pieces) == 1
    for name, view, _ in place.downloads:
        if name not in results:
            if view.nbytes < LARGE:
                results[name] = view.copy()
                continue
            results[name] = np.empty(view.shape, view.dtype)
        copy(results[name] if whole else results[name][piece.start : piece.stop], view)


class Completer:
    """Fetches the results of what was submitted on a lane, in a thread of its own that starts with the first of them.

    Args:
        name: Of the thread.

    Attributes:
        put: Hands a flight over, by one call of C code; `start` comes before it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._flights: SimpleQueue[Flight | None] = SimpleQueue()
        self.put: Callable[[Flight], None] = self._flights.put
        self._threads: list[threading.Thread] = []  # more than one where Ctrl-C came while the first one started
        self._later: deque[tuple[Batch, BaseException | None]] = deque()  # what landed and is not told yet
        self._started = False
        self._starting = threading.Lock()

    def start(self) -> None:
        """Have the thread run, before there is anything to lose.

        Raises:
            EngineError: The system has no thread left.
        """
        if self._started:
            return
        with self._starting:
            if self._started:
                return
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._threads.append(thread)
            try:
                thread.start()
            except RuntimeError as error:
                self._threads.remove(thread)
                raise EngineError(
                    f"no thread could be started to fetch results: {error}",
                    allowed="a system with threads left; or calls of the engine itself, which need none",
                    run="ulimit -u    # how many this user may have",
                ) from error
            self._started = True

    @property
    def here(self) -> bool:
        """Whether this is its thread: a future's callback uses the engine."""
        return threading.current_thread() in self._threads

    def help_out(self, *, quietly: bool = False) -> bool:
        """Fetch one flight, if there is one and this is its thread, which fetches none meanwhile.

        Args:
            quietly: Whether to complete the future later, as its callbacks might want what the caller holds.
        """
        if not self.here:
            return False
        if self._later and not quietly:
            self._tell()
            return True
        try:
            flight = self._flights.get_nowait()
        except Empty:
            return False
        if flight is not None:
            self._land(flight)
            if not quietly:
                self._tell()
        return True

    def stop(self) -> None:
        """End the thread; nothing may be in flight."""
        for _ in self._threads:
            self._flights.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join()

    def _work(self) -> None:
        while (flight := self._flights.get()) is not None:
            self._land(flight)
            del flight  # and with it the user's arrays
            self._tell()

    def _land(self, flight: Flight) -> None:
        error: BaseException | None = None
        batch = flight.batch
        try:
            assert flight.lease is not None
            land(flight.lease.slot, flight.place, batch, flight.piece, sleeping=True)
        except BaseException as raised:
            error = raised
        flight.lease = None  # before the callbacks, which may take the slot
        self._later.append((batch, error))

    def _tell(self) -> None:
        while self._later:
            batch, error = self._later.popleft()
            batch.landed(error)


def run_here(batch: Batch, pool: SlotPool, take: Callable[[], Lease]) -> None:
    """Run a batch in this thread, its pieces overlapped, and wait for it, unless a stream of the caller does.

    A thread that has pieces in flight never waits for another one's slot: it fetches its own oldest piece and uses that
    slot again. So threads that all have some cannot wait for each other.
    """
    if len(batch.pieces) == 1 and batch.after is None:
        lease = take()
        try:
            fly(lease.slot, batch, batch.pieces[0])
        finally:
            del lease
    else:
        _run_pieces(batch, pool, take)


def _run_pieces(batch: Batch, pool: SlotPool, take: Callable[[], Lease]) -> None:
    flights: list[Flight] = []
    flight: Flight | None = None
    try:
        for piece in batch.pieces:
            flight = Flight(batch, piece)
            flight.lease = pool.try_take() if flights else take()
            if flight.lease is None:
                _land_first(flights)
                flight.lease, flights[0].lease = flights[0].lease, None
                del flights[0]
                assert flight.lease is not None
            slot = flight.lease.slot
            flight.place = launch(slot, batch, piece)
            if batch.after is not None:
                slot.leave(batch.keep)
            else:
                flights.append(flight)
        while flights:
            _land_first(flights)
            del flights[0]
    except BaseException:
        for lane in {each.lease.slot.lane for each in (*flights, flight) if each and each.lease}:
            lane.settle()
        raise
    finally:
        flight = None
        flights.clear()


def _land_first(flights: Sequence[Flight]) -> None:
    first = flights[0]
    assert first.lease is not None
    slot, place, batch, piece = first.lease.slot, first.place, first.batch, first.piece
    del first
    land(slot, place, batch, piece)
