"""`face3d-trt standin`."""

from __future__ import annotations


def command() -> None:
    """Not there yet."""
    raise NotImplementedError
