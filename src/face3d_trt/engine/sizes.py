"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re

from face3d_trt.errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def parse_size(text: str, option: str = "--workspace") -> int:
    """Read "1GiB", "512MiB", "1.5GB" or a plain number of bytes.

    Raises:
        UsageError: It is not a size, or less than one byte.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if size < 1:
        raise UsageError(
            f"{option} {text!r} is not a size",
            allowed="a positive number with B, KiB, MiB, GiB, KB, MB or GB; a bare number is bytes",
            run=f"face3d-trt build {option} 1GiB",
        )
    return size


def format_size(size: int) -> str:
    """Write a size for reading: 3884484 → "3.7 MiB"."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"
