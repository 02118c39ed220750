"""`face3d-trt doctor`."""

from __future__ import annotations


def command() -> None:
    """Not there yet."""
    raise NotImplementedError
