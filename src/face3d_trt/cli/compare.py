"""`face3d-trt compare`."""

from __future__ import annotations


def command() -> None:
    """Not there yet."""
    raise NotImplementedError
