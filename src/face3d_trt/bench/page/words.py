"""Figures as text, and texts of options as figures."""

from __future__ import annotations

import re

from face3d_trt.errors import UsageError

NOTHING = "–"  # noqa: RUF001  an en dash, where there is no figure
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "": 1.0}


def significant(value: float) -> str:
    """Three digits, or all of those before the point: `0.300`, `6.26`, `72,946`."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def gigabytes(nbytes: float) -> str:
    """`0.62`, of 1e9 bytes."""
    return f"{nbytes / 1e9:.2f}"


def percent(share: float) -> str:
    """`3.1 %`, `76 %`."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 else f"{100 * share:.1f} %"


def times(ratio: float) -> str:
    """`2.65`."""
    return f"{ratio:.2f}"


def parse_milliseconds(text: str) -> float:
    """`5ms`, `500us`, `0.02s`; a bare number is milliseconds.

    Raises:
        UsageError: It is no such time.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(us|ms|s|)\s*", text)
    if found is None or not float(found[1]):
        raise UsageError(f"{text!r} is no time", allowed="a number with us, ms or s, above 0: 5ms")
    return float(found[1]) * _UNITS[found[2]]


def parse_share(text: str) -> float:
    """`5%` as 0.05; a bare number is per cent too.

    Raises:
        UsageError: It is no such share.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*%?\s*", text)
    if found is None:
        raise UsageError(f"{text!r} is no share", allowed="a number of per cent: 5%")
    return float(found[1]) / 100


def shown_command(command: str) -> str:
    """A command line without the folders of the machine that it ran on."""
    return re.sub(r"(?<![\w.~])/(?:[^\s/'\"]+/)+", "", command)
