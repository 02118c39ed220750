"""Import of packages that belong to an extra, with the command that installs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from face3d_trt.errors import MissingError


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import `module`, which the extra `extra` brings.

    Raises:
        MissingError: It is not installed, or cannot be imported; the message has the pip command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingError(
            f"{purpose} needs the package {module.partition('.')[0]}, which cannot be imported: {error}",
            run=f"pip install 'face3d-trt[{extra}]'",
        ) from error
