"""`face3d-trt calib`."""

from __future__ import annotations


def command() -> None:
    """Not there yet."""
    raise NotImplementedError
