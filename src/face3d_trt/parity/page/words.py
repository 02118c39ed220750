"""Figures as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.meaning_table import number

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 48  # characters of a name where it is one of many


def shown(value: float, measure: str) -> str:
    """A value with as many digits as its measure has, without its unit."""
    return number(value, measure) if math.isfinite(value) else "not finite"


def with_unit(value: float, measure: str) -> str:
    """The same with its unit."""
    unit = MEASURES[measure].unit
    return f"{shown(value, measure)} {unit}" if unit and math.isfinite(value) else shown(value, measure)


def percent(share: float) -> str:
    """A share of a limit: `67 %`, `< 1 %`, `12 times`."""
    if not math.isfinite(share):
        return "no share"
    if share >= 10:
        return f"{share:.0f} times" if share < 1e4 else f"{share:.0e} times"
    return f"{100 * share:.0f} %" if share >= 0.01 else "< 1 %"


def answer(passed: Sequence[bool]) -> str:
    """The answer for all plans, in one sentence."""
    if len(passed) == 1:
        return "The plan passed." if passed[0] else "The plan failed."
    if all(passed):
        return f"All {len(passed)} plans passed."
    return f"{sum(passed) or 'None'} of {len(passed)} plans passed."


def shorten(text: str, length: int = LONGEST) -> str:
    """`text`, without its middle where it is longer than `length`: file names differ at their ends."""
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"
