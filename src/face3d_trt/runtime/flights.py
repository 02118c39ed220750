"""What is on its way: batches, the pieces of them that run, and who fetches the results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.runtime.copying import LARGE, copy
from face3d_trt.runtime.lane import Away

if TYPE_CHECKING:
    from face3d_trt.runtime.pieces import Piece
    from face3d_trt.runtime.resources import Event
    from face3d_trt.runtime.slots import Place, Slot, SlotPool

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
        broken: Whether one of them failed.
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
    broken: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def away(self, piece: Piece) -> Away | None:
        """Ends of a piece on the GPU; None: host to host through the slot."""
        if self.images is not None and self.targets is None:
            return None
        results = {name: address + piece.start * row for name, (address, row) in (self.targets or {}).items()}
        source = self.source + piece.start * self.source_row if self.images is None else None
        return Away(source, results, self.before, self.after)

    def landed(self) -> None:
        """One piece of a submit is done."""
        with self.lock:
            self.left -= 1
            last = self.left == 0
        if last and self.future is not None:  # a piece that failed never lands, and then none is the last
            self.future.set_result(self.results)

    def failed(self, error: BaseException) -> None:
        """One piece of a submit failed; the first error counts."""
        with self.lock:
            first, self.broken = not self.broken, True
        if first and self.future is not None:  # without the lock: callbacks run here, and may fetch another piece
            self.future.set_exception(error)


class Flight:
    """A piece that runs in a slot."""

    __slots__ = ("batch", "piece", "place", "slot")

    def __init__(self, slot: Slot, place: Place, batch: Batch, piece: Piece) -> None:
        self.slot, self.place, self.batch, self.piece = slot, place, batch, piece


def launch(slot: Slot, batch: Batch, piece: Piece, *, sleeping: bool = False) -> Flight:
    """Put a piece on the GPU.

    Args:
        slot: Free, and this thread's until the flight has landed.
        batch: What the piece belongs to.
        piece: Which rows.
        sleeping: Whether who fetches it will sleep until it is done; otherwise he spins.
    """
    try:
        with slot.lane.device.current():
            place = _start(slot, batch, piece, slot.finished if sleeping else slot.done)
    except BaseException:
        slot.lane.settle()
        raise
    return Flight(slot, place, batch, piece)


def land(flight: Flight, *, sleeping: bool = False) -> None:
    """Wait for a flight and copy its results to where they belong."""
    slot = flight.slot
    with slot.lane.device.current():
        (slot.finished if sleeping else slot.done).synchronize()
    _collect(flight.place, flight.batch, flight.piece)


def fly(slot: Slot, batch: Batch, piece: Piece) -> None:
    """Launch and land in one go, for the shortest way from call to result."""
    try:
        with slot.lane.device.current():
            place = _start(slot, batch, piece, slot.done)
            slot.done.synchronize()
    except BaseException:
        slot.lane.settle()
        raise
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
        pool: Where slots go back to.
        name: Of the thread.
    """

    def __init__(self, pool: SlotPool, name: str) -> None:
        self._pool, self._name = pool, name
        self._flights: SimpleQueue[Flight | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def put(self, flight: Flight) -> None:
        """Hand a flight over."""
        self._flights.put(flight)
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                    thread.start()
                    self._thread = thread

    def help_out(self) -> bool:
        """Whether this is its thread, which then fetches one flight: a future's callback uses the engine."""
        if threading.current_thread() is not self._thread:
            return False
        try:
            flight = self._flights.get_nowait()
        except Empty:
            return False
        if flight is not None:
            self._land(flight)
        return True

    def stop(self) -> None:
        """End the thread; nothing may be in flight."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._flights.put(None)
            if thread is not threading.current_thread():
                thread.join()

    def _work(self) -> None:
        while (flight := self._flights.get()) is not None:
            self._land(flight)
            del flight  # and with it the user's arrays

    def _land(self, flight: Flight) -> None:
        batch = flight.batch
        try:
            land(flight, sleeping=True)
        except BaseException as error:
            self._pool.give(flight.slot)
            batch.failed(error)
        else:
            self._pool.give(flight.slot)
            batch.landed()


def run_here(pool: SlotPool, batch: Batch, take: Callable[[], Slot]) -> None:
    """Run a batch in this thread, its pieces overlapped, and wait for it, unless a stream of the caller does.

    A thread that has pieces in flight never waits for another one's slot: it fetches its own oldest piece and uses that
    slot again. So threads that all have some cannot wait for each other.
    """
    if len(batch.pieces) == 1 and batch.after is None:
        slot = take()
        try:
            fly(slot, batch, batch.pieces[0])
        finally:
            pool.give(slot)
    else:
        _run_pieces(pool, batch, take)


def _run_pieces(pool: SlotPool, batch: Batch, take: Callable[[], Slot]) -> None:
    flights: list[Flight] = []
    slot: Slot | None = None
    try:
        for piece in batch.pieces:
            slot = _slot(pool, flights, take)
            flight = launch(slot, batch, piece)
            slot.pending = batch.after is not None
            if slot.pending:
                slot.keep = batch.keep
                pool.give(slot)
            else:
                flights.append(flight)
            slot = None
        while flights:
            land(flights[0])
            pool.give(flights.pop(0).slot)
    except BaseException:
        _give_up(pool, flights, slot)
        raise


def _slot(pool: SlotPool, flights: list[Flight], take: Callable[[], Slot]) -> Slot:
    if not flights:
        return take()
    found = pool.try_take()
    if found is None:
        land(flights[0])
        found = flights.pop(0).slot
    return found


def _give_up(pool: SlotPool, flights: Sequence[Flight], slot: Slot | None) -> None:
    slots = [*(flight.slot for flight in flights), *([slot] if slot else [])]
    for lane in {each.lane for each in slots}:
        lane.settle()
    for each in slots:
        pool.give(each)
