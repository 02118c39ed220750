"""Where the alignment template comes from: the model, or the graph that was exported from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.names import DEFAULT_ONNX

if TYPE_CHECKING:
    from face3d_trt.faces.align import Floats


def find_template(onnx: Path | None = None, model: str | Path | None = None) -> Floats:
    """The (5, 3) alignment template, 1.0 = 100 mm, of an exported graph or of a model.

    Args:
        onnx: The graph; DEFAULT_ONNX if neither is given.
        model: A model directory, or a ModelScope id.

    Raises:
        UsageError: Both are given.
        MissingError: There is no such graph, or the model is neither in the cache nor can be fetched.
        GraphError, ModelError: It is not one of ours; the directory is not a model.
    """
    if onnx is not None and model is not None:
        raise UsageError("--onnx and --model both name where the template comes from", allowed="one of them")
    if model is not None:
        from face3d_trt.model.load import read_template
        from face3d_trt.model.resolve import resolve_model

        return np.asarray(read_template(resolve_model(model).directory), dtype=np.float64)
    graph = onnx or Path(DEFAULT_ONNX)
    if not graph.is_file():
        raise MissingError(
            f"{graph} is not there; photos are aligned to the template that it carries",
            allowed="--onnx with an exported graph, or --model with a model directory",
            run="face3d-trt export",
        )
    from face3d_trt.graph.info import read_info

    return np.asarray(read_info(graph).template, dtype=np.float64)
