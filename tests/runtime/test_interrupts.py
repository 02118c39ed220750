"""Ctrl-C at every place where CPython lets it in."""

from __future__ import annotations

import dis
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.runtime.engine_cases import check
from tests.runtime.engine_parts import Parts
from tests.runtime.fakes import FakeDevice
from tests.runtime.network import LARGEST, pictures

from face3d_trt.runtime.engine import RING, Engine

AFTER = ("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME")  # instructions after which CPython looks for signals
WATCHED = ("runtime/engine.py", "runtime/flights.py", "runtime/pool.py", "runtime/slots.py", "runtime/interface.py")


@pytest.fixture
def parts() -> Iterator[Parts]:
    gc.collect()  # engines of other tests, whose finalizers are not to be interrupted
    made = Parts(real=False)
    yield made
    made.close()


@functools.cache
def handlers(code: CodeType) -> Any:
    return dis._parse_exception_table(code)  # type: ignore[attr-defined]


@functools.cache
def lets_in(code: CodeType, last: int, this: int) -> bool:
    """Whether a signal may come in after instruction `last`, and is caught there by what catches it at `this`."""
    caught = [[each.target for each in handlers(code) if each.start <= at < each.end] for at in (last, this)]
    return dis.opname[code.co_code[last]].startswith(AFTER) and caught[0] == caught[1]


class Interrupt:
    """Raises KeyboardInterrupt in this thread at one of the places, the `place`th that is come to.

    Attributes:
        reached: Whether there were so many.
    """

    def __init__(self, place: int) -> None:
        self.left, self.reached = place, False
        self._last: dict[FrameType, int] = {}

    def __enter__(self) -> Interrupt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._last.clear()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.endswith(WATCHED) or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not self.reached:
            last = self._last.get(frame, -1)
            self._last[frame] = frame.f_lasti
            if last >= 0 and lets_in(frame.f_code, last, frame.f_lasti):
                self.left -= 1
                if self.left < 0:
                    self.reached = True
                    raise KeyboardInterrupt
        return self._trace


def by_submit(engine: Engine) -> None:
    engine.submit(pictures(2)).result(timeout=30)


def in_pieces_by_submit(engine: Engine) -> None:
    engine.submit(pictures(LARGEST + 3)).result(timeout=30)


def by_map(engine: Engine) -> None:
    for _ in engine.map([pictures(2), pictures(3)]):
        pass


WAYS: dict[str, Callable[[Engine], object]] = {
    "call": lambda engine: engine(pictures(2)),
    "call in pieces": lambda engine: engine(pictures(4 * LARGEST + 3)),
    "call to the GPU": lambda engine: engine(pictures(2), to="device"),
    "submit": by_submit,
    "submit in pieces": in_pieces_by_submit,
    "map": by_map,
    "warm_up": lambda engine: engine.warm_up(2),
}


def all_slots_work(engine: Engine) -> bool:
    """Whether as many batches as there are slots are in flight at the same time."""
    free = [engine._pool.try_take() for _ in range(RING)]
    return None not in free


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no table of what catches where")
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_at_any_place_loses_no_room(parts, way):
    engine = parts.open(gpu=FakeDevice(delay=None))
    engine.warm_up((1, 2))
    kept = []  # as a console keeps the last one; their tracebacks hold local variables
    for place in range(3000):
        try:
            with Interrupt(place) as interrupt:
                WAYS[way](engine)
        except KeyboardInterrupt as error:
            kept.append(error)
        for _ in range(500):  # what was submitted lands
            if engine._pool.resting:
                break
            time.sleep(0.0005)
        assert all_slots_work(engine), f"place {place}"
        if not interrupt.reached:
            break
    assert len(kept) > 10
    check(engine(pictures(3)), pictures(3))
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
