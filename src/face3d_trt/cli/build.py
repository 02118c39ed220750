"""`face3d-trt build`."""

from __future__ import annotations


def command() -> None:
    """Not there yet."""
    raise NotImplementedError
