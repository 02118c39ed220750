"""Who has which slot.

A slot is taken as long as somebody holds its lease, and free from the moment the last reference to it goes. No call
gives it back, as Ctrl-C might come before it: KeyboardInterrupt may be raised after any call of C code and at the begin
of any Python function, but not amid `lease = None`. The rules that follow for those who hold one:

* A lease is a local variable only of the function that takes and drops it (`finally: lease = None`), never an argument,
  as the traceback of an error keeps the arguments of every function that it passed.
* Whoever hands it on does so in one call of C code (`SimpleQueue.put`), and holds it until that is done.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from face3d_trt.errors import EngineError

if TYPE_CHECKING:
    from face3d_trt.runtime.slots import Slot

PATIENCE_S = 0.05  # between two looks at slots of which no hint came: Ctrl-C can lose a hint, never a slot


class Lease:
    """The right to a slot, for whoever holds it."""

    __slots__ = ("__weakref__", "slot")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot


class _Claims:
    """Who has a slot, and who gets it next."""

    __slots__ = ("heir", "holder", "slot")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.holder: weakref.ref[Any] = _NOBODY
        self.heir: weakref.ref[Any] = _NOBODY


class _Nobody:
    pass


_NOBODY: weakref.ref[Any] = weakref.ref(_Nobody())


class SlotPool:
    """Which slots are free. The first of a lane goes first, so that a lone caller uses, and fills, only one.

    Args:
        lanes: The slots of each lane.

    Attributes:
        slots: All of them.
    """

    def __init__(self, lanes: Sequence[Sequence[Slot]]) -> None:
        self._lanes = tuple(tuple(map(_Claims, slots)) for slots in lanes)
        self._of = {each.slot: each for claims in self._lanes for each in claims}
        self.slots = tuple(self._of)
        self._hints: SimpleQueue[object] = SimpleQueue()  # about one for each free slot
        self._hint = self._hints.put
        self._lock = threading.Lock()
        self._closed = False
        for _ in self.slots:
            self._hints.put(None)

    def try_take(self, *, hinted: bool = False) -> Lease | None:
        """The lease of a free slot; None if there is none, or no more.

        Args:
            hinted: Whether `wait` said that there is one.
        """
        if not hinted:
            try:  # noqa: SIM105 - a context manager would cost more than all the rest
                self._hints.get_nowait()
            except Empty:
                pass
        with self._lock:
            return self._lend()

    def wait(self, seconds: float = PATIENCE_S) -> bool:
        """Wait for a free slot, so long at most. Not to be called with a context pushed: see cuda.py.

        Returns:
            Whether there was a hint; `try_take` may find a slot without one as well.

        Raises:
            EngineError: The engine was closed meanwhile.
        """
        hinted = True
        try:
            self._hints.get(timeout=seconds)
        except Empty:
            hinted = False
        if self._closed:
            self._hints.put(None)  # whoever waits hands it on
            raise _closed()
        return hinted

    def reserve(self, slot: Slot) -> Lease | None:
        """The right to a slot's next lease, for as long as the caller holds it; None if another one has it.

        Raises:
            EngineError: The engine was closed meanwhile.
        """
        claims = self._of[slot]
        with self._lock:
            if self._closed:
                raise _closed()
            return self._bequeath(claims) if claims.heir() is None else None

    def take_reserved(self, slot: Slot) -> Lease | None:
        """The lease of a slot whose next one the caller has reserved; None as long as somebody has it.

        Raises:
            EngineError: The engine was closed meanwhile.
        """
        claims = self._of[slot]
        with self._lock:
            if self._closed:
                raise _closed()
            return self._link(claims) if claims.holder() is None else None

    def shut(self) -> None:
        """Nobody gets one any more."""
        with self._lock:
            self._closed = True
        self._hints.put(None)

    @property
    def resting(self) -> bool:
        """Whether nobody has one."""
        return all(each.holder() is None for each in self._of.values())

    def _lend(self) -> Lease | None:
        if self._closed:
            return None
        lane = self._lanes[0] if len(self._lanes) == 1 else max(self._lanes, key=_count_free)
        found = None
        for each in lane:
            if each.holder() is None and each.heir() is None:
                if not each.slot.pending:
                    return self._link(each)
                if found is None or each.slot.pending < found.slot.pending:  # the one whose run is done first
                    found = each
        return None if found is None else self._link(found)

    def _link(self, claims: _Claims) -> Lease:
        lease = Lease(claims.slot)
        claims.holder = weakref.ref(lease, self._hint)
        return lease  # no call since: who is interrupted with `lease` in this frame has not yet taken the slot

    def _bequeath(self, claims: _Claims) -> Lease:
        heir = Lease(claims.slot)
        claims.heir = weakref.ref(heir, self._hint)
        return heir


def _count_free(claims: Sequence[_Claims]) -> int:
    return sum(each.holder() is None and each.heir() is None for each in claims)


def _closed() -> EngineError:
    return EngineError("this engine was closed while this call waited for room", run="open it again")
