"""The fewest nodes to keep higher so that the gate holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def fewest(
    order: Sequence[str], cost: Mapping[str, float], holds: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...] | None:
    """Take nodes in the order of their loss until the gate holds, then leave out what turns out not to be needed.

    Costs interact (a value that one range cuts is not there for the next one to cut), so that the first nodes of the
    ranking that suffice are more than are needed. The result is not the smallest of all sets, which would take
    exponentially many tries; but none of its nodes can be left out.

    Args:
        order: Nodes, the most costly in accuracy first.
        cost: Of keeping each of them: its share of the multiply-adds.
        holds: Whether the gate holds with these nodes kept.

    Returns:
        The nodes in the order of `order`; () when none is needed, None when all of them are not enough.
    """
    if holds(()):
        return ()
    fails, size = 0, 1
    while not holds(tuple(order[:size])):
        if size >= len(order):
            return None
        fails, size = size, min(2 * size, len(order))
    while size - fails > 1:
        middle = (size + fails) // 2
        if holds(tuple(order[:middle])):
            size = middle
        else:
            fails = middle
    kept = list(order[:size])
    # the dearest first, and of equals the one that costs least accuracy
    for name in sorted(kept, key=lambda each: (-cost.get(each, 0.0), -order.index(each))):
        fewer = tuple(each for each in kept if each != name)
        if len(kept) > 1 and holds(fewer):
            kept.remove(name)
    return tuple(kept)
