"""The facts of the model inside an exported ONNX file, under the metadata key `face3d`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from face3d_trt.errors import GraphError
from face3d_trt.optional import require
from face3d_trt.records import ModelInfo

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

KEY = "face3d"
_WANTED = "an ONNX file written by face3d-trt export"
_EXPORT = "face3d-trt export --model MODEL"


def load_graph(path: Path) -> tuple[ModelProto, str]:
    """Load an ONNX file, and the SHA-256 of the very bytes that it was parsed from.

    Raises:
        GraphError: Missing, not ONNX, or with weights in other files, which no hash of this one would vouch for.
    """
    onnx = require("onnx", "export", "reading ONNX files")
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is missing"
        raise GraphError(f"{path} {what}", allowed=_WANTED, run=_EXPORT)
    try:
        data = path.read_bytes()
        model = onnx.load_model_from_string(data)
        if not model.graph.node:
            raise ValueError("it has no nodes")
    except Exception as error:  # protobuf's own error type differs between its releases
        raise GraphError(f"{path} is not an ONNX file: {error}", allowed=_WANTED, run=_EXPORT) from error
    for tensor in _tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            places = {item.key: item.value for item in tensor.external_data}
            raise GraphError(
                f"{path} keeps weights in another file: {tensor.name} in {places.get('location', 'no named file')}",
                allowed="one file that holds its weights, as face3d-trt export writes it",
                run=_EXPORT,
            )
    return model, hashlib.sha256(data).hexdigest()


def read_graph(path: Path) -> ModelProto:
    """Load an ONNX file.

    Raises:
        GraphError: As `load_graph`.
    """
    return load_graph(path)[0]


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every constant of a graph: initializers and attributes, those of subgraphs too."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)


def read_info(source: Path | ModelProto, name: str | None = None) -> ModelInfo:
    """The facts that `export` wrote into an ONNX file.

    Args:
        source: The file, or its graph.
        name: What messages call it; None: the file's path.

    Raises:
        GraphError: The file is missing, is not ONNX, or was not written by `face3d-trt export`.
    """
    model = read_graph(source) if isinstance(source, Path) else source
    name = name or (str(source) if isinstance(source, Path) else "the graph")
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
