"""Numbers that a caller gives: checked here for every engine, so that a twin refuses what the engine would."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from face3d_trt.errors import InputError
from face3d_trt.names import MAX_BATCH


def check_number(name: str, value: Any, allowed: str, *, least: int = 1, most: int | None = None) -> int:
    """A whole number, of Python or numpy.

    Args:
        name: Of the option.
        value: What was given.
        allowed: What is, for the message.
        least: The smallest.
        most: The largest; None: there is none.

    Raises:
        InputError: It is none, or outside.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name}={value!r}", allowed=allowed) from None
    if number < least or (most is not None and number > most):
        raise InputError(f"{name}={number}", allowed=allowed)
    return number


def check_batch(name: str, rows: Any) -> int:
    """Rows of a batch."""
    return check_number(f"{name}: batch", rows, f"a number of rows, 1 to {MAX_BATCH}", most=MAX_BATCH)


def check_batches(batches: Any) -> tuple[int, ...]:
    """Batch sizes to warm up: one, or some."""
    if isinstance(batches, str | bytes) or not isinstance(batches, Iterable):
        batches = (batches,)
    return tuple(check_batch("warm_up", rows) for rows in batches)


def check_engine(contexts: Any = 1, memory_limit: Any = None) -> tuple[int, int | None]:
    """Options of Engine; the twin has no use for them, and refuses them all the same."""
    contexts = check_number("contexts", contexts, "a number of execution contexts, 1 or more")
    if memory_limit is not None:
        memory_limit = check_number("memory_limit", memory_limit, "a number of bytes (4 << 30 is 4 GiB), or None")
    return contexts, memory_limit


def check_index(name: str, device: Any) -> int:
    """Index of a GPU."""
    return check_number(name, device, "the index of a GPU, from 0 on", least=0)
