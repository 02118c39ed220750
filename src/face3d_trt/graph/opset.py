"""One opset for the whole graph, whichever TensorRT will read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from face3d_trt.errors import GraphError

if TYPE_CHECKING:
    from onnx import ModelProto

_OPTIONAL_AXES_FROM = 18  # the opset in which the Reduce operators learned `noop_with_empty_axes`


def opset_of(model: ModelProto) -> int:
    """Version of the default operator set that `model` declares."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def at_opset(model: ModelProto, opset: int) -> ModelProto:
    """Give `model` at the default operator set `opset`; the same object when it is there already.

    Raises:
        GraphError: An operator of the graph does not exist in that opset.
    """
    from onnx import version_converter

    if opset_of(model) == opset:
        return model
    try:
        converted = version_converter.convert_version(model, opset)
    except Exception as error:  # the converter raises bare RuntimeError, ConvertError, ValueError ...
        raise GraphError(
            f"the graph cannot be converted from opset {opset_of(model)} to {opset}: {error}",
            allowed="a graph written by `face3d-trt export`",
            run="face3d-trt export",
        ) from error
    if opset < _OPTIONAL_AXES_FROM:
        _drop_optional_axes(converted)
    return converted


def _drop_optional_axes(model: ModelProto) -> None:
    # onnx's converter turns the input `axes` back into an attribute and leaves this newer attribute standing beside it.
    for node in model.graph.node:
        for index in reversed(range(len(node.attribute))):
            if node.attribute[index].name == "noop_with_empty_axes" and node.attribute[index].i == 0:
                del node.attribute[index]
