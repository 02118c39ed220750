"""The facts of the model inside an exported ONNX file, under the metadata key `face3d`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from face3d_trt.errors import GraphError
from face3d_trt.optional import require
from face3d_trt.records import ModelInfo

if TYPE_CHECKING:
    from onnx import ModelProto

KEY = "face3d"


def read_graph(path: Path, *, weights: bool = True) -> ModelProto:
    """Load an ONNX file.

    Args:
        path: The file.
        weights: Load external data too, where the file has any.

    Raises:
        GraphError: Missing, or not ONNX.
    """
    onnx = require("onnx", "export", "reading ONNX files")
    if not path.is_file():
        raise GraphError(f"{path} is missing", run=f"face3d-trt export -o {path}")
    try:
        model = onnx.load(path, load_external_data=weights)
        if not model.graph.node:
            raise ValueError("it has no nodes")
        return model
    except Exception as error:  # protobuf's own error type differs between its releases
        raise GraphError(f"{path} is not an ONNX file: {error}", run=f"face3d-trt export -o {path}") from error


def read_info(source: Path | ModelProto) -> ModelInfo:
    """The facts that `export` wrote into an ONNX file.

    Raises:
        GraphError: The file is missing, is not ONNX, or was not written by `face3d-trt export`.
    """
    model = read_graph(source, weights=False) if isinstance(source, Path) else source
    name = str(source) if isinstance(source, Path) else "the graph"
    texts = [item.value for item in model.metadata_props if item.key == KEY]
    inputs = ", ".join(i.name for i in model.graph.input)
    if not texts:
        raise GraphError(
            f"{name} was not written by this tool: it has no metadata {KEY!r}; its inputs are {inputs or 'none'}",
            allowed="an ONNX file written by face3d-trt export",
            run="face3d-trt export --model MODEL",
        )
    try:
        return ModelInfo.model_validate_json(texts[0])
    except ValidationError as error:
        raise GraphError(
            f"{name} was written by another version: {error}", run="face3d-trt export --model MODEL"
        ) from error


def write_info(model: ModelProto, info: ModelInfo) -> None:
    """Put `info` into the graph's metadata, in place of what stands there."""
    kept = [(item.key, item.value) for item in model.metadata_props if item.key != KEY]
    del model.metadata_props[:]
    for key, value in [*kept, (KEY, info.model_dump_json())]:
        model.metadata_props.add(key=key, value=value)
