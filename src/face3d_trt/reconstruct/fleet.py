"""The engines of a run, one process for each device, seen from the process that leads it: all fed from one queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.errors import StoppedError
from face3d_trt.reconstruct.engines import EngineSetup, serve
from face3d_trt.reconstruct.gpus import device_name
from face3d_trt.reconstruct.messages import Batch, Broken, Inferred, Ready
from face3d_trt.reconstruct.processes import Child

if TYPE_CHECKING:
    from face3d_trt.reconstruct.batching import Batcher
    from face3d_trt.reconstruct.shared import Bays, Memory

_AHEAD = 1  # batches of an engine beyond those that it overlaps
_MOST_STRIKES = 2  # failures of one device's engine, without a batch that went well in between


@dataclass(eq=False)
class Vessel:
    """One engine.

    Attributes:
        setup: What it opens.
        child: Its process.
        ready: What it said of itself; None: it has not yet.
        batches: That it has, by ticket.
        strikes: How often it failed.
    """

    setup: EngineSetup
    child: Child
    ready: Ready | None = None
    batches: dict[int, Batch] = field(default_factory=dict)
    strikes: int = 0


class Fleet:
    """The engines.

    Args:
        plan: What they run.
        devices: On which.
        memory: Of the bays.
        threads: Of ONNX Runtime, each.
    """

    def __init__(self, plan: Path, devices: Sequence[int], memory: Memory, threads: int) -> None:
        self._memory = memory
        self._bays: Bays | None = None
        self.vessels = [self._launch(EngineSetup(plan, device, threads)) for device in devices]

    def await_ready(self) -> Ready:
        """Wait until all are open.

        Returns:
            What they have in common.

        Raises:
            Face3DError: One cannot be opened.
        """
        for vessel in self.vessels:
            vessel.ready = self._hear(vessel)
        first = self.vessels[0].ready
        assert first is not None
        return first

    def start(self, bays: Bays) -> None:
        """Tell them where the pictures are."""
        self._bays = bays
        for vessel in self.vessels:
            vessel.child.tell((bays.count, bays.layout))

    def free(self) -> Vessel | None:
        """The engine with the least to do; None: all have enough."""
        open_ones = [each for each in self.vessels if each.ready]
        if not open_ones:
            return None
        vessel = min(open_ones, key=lambda each: len(each.batches))
        assert vessel.ready is not None
        return vessel if len(vessel.batches) < vessel.ready.depth + _AHEAD else None

    @property
    def idle(self) -> bool:
        """Whether one has nothing to do."""
        return any(each.ready and not each.batches for each in self.vessels)

    def give(self, vessel: Vessel, batch: Batch, size: int) -> None:
        """A batch for an engine, filled up where results depend on its size.

        Args:
            vessel: The engine.
            batch: What it is to infer.
            size: Of a full batch.
        """
        assert vessel.ready is not None
        rows = max(batch.rows, vessel.ready.batch[0], size if vessel.ready.padded else 0)
        vessel.batches[batch.ticket] = batch
        vessel.child.tell(replace(batch, rows=rows))

    def answer(self, vessel: Vessel) -> Inferred | Ready | None:
        """What an engine says; None: it is gone.

        Raises:
            Face3DError: An engine that was opened again cannot be.
        """
        try:
            message: object = vessel.child.connection.recv()
        except (EOFError, ConnectionResetError):
            return None
        if isinstance(message, Broken):
            raise message.error
        if isinstance(message, Ready):
            vessel.ready = message
            assert self._bays is not None
            vessel.child.tell((self._bays.count, self._bays.layout))
        else:
            assert isinstance(message, Inferred)
            if not message.problem:
                vessel.strikes = 0
        return message

    def reopen(self, vessel: Vessel, batcher: Batcher, problem: str, now: float) -> str:
        """Another process for an engine that failed; its batches go back to the queue.

        Returns:
            What happened, in words.

        Raises:
            StoppedError: It fails again and again, and it was the last.
        """
        where = device_name(vessel.setup.device)
        problem = problem or f"its process died ({vessel.child.ending()})"
        give_back(vessel, batcher, now)
        vessel.child.end(0)
        vessel.strikes += 1
        if vessel.strikes <= _MOST_STRIKES:
            fresh = self._launch(vessel.setup)
            vessel.child, vessel.ready = fresh.child, None
            return f"the engine on {where} failed and is opened again: {problem}"
        self.vessels.remove(vessel)
        if not self.vessels:
            raise StoppedError(f"the engine on {where} fails again and again: {problem}")
        return f"the engine on {where} fails again and again, and is left out: {problem}"

    def end(self, patience_s: float) -> None:
        """Close them."""
        for vessel in self.vessels:
            vessel.child.tell(None)
        for vessel in self.vessels:
            vessel.child.end(patience_s)

    def _hear(self, vessel: Vessel) -> Ready:
        try:
            message = vessel.child.connection.recv()
        except (EOFError, ConnectionResetError):
            where = device_name(vessel.setup.device)
            raise StoppedError(f"the engine on {where} died while it was opened: {vessel.child.ending()}") from None
        if isinstance(message, Broken):
            raise message.error
        assert isinstance(message, Ready)
        return message

    def _launch(self, setup: EngineSetup) -> Vessel:
        name = f"face3d-trt engine on {device_name(setup.device)}"
        return Vessel(setup, Child(serve, (self._memory, setup), name, {}))


def give_back(vessel: Vessel, batcher: Batcher, now: float, ticket: int | None = None) -> None:
    """Put an engine's batches back before everything else that waits; one of them, or all."""
    tickets = sorted(vessel.batches, reverse=True) if ticket is None else [ticket]
    for each in tickets:
        batch = vessel.batches.pop(each)
        for bay, start, stop in reversed(batch.parts):
            batcher.add(bay, start, stop, batch.shape, now, first=True)
