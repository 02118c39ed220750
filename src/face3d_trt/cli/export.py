"""`face3d-trt export`."""

from __future__ import annotations


def command() -> None:
    """Not there yet."""
    raise NotImplementedError
