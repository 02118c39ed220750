"""Make ONNX Runtime's CPU provider round where a typed graph says float16.

The CPU provider has no float16 kernel for Conv, Add and others. Its InsertCast pass, which no option turns off, puts
casts around each such node, calls them free of precision, and removes the pairs that meet. So a whole float16 network
runs in float32 with float16 weights, at every optimization level, ORT_DISABLE_ALL included
(microsoft/onnxruntime#8787): no activation is rounded, and one that overflows in float16 comes out finite. What is
written out is kept: here every node computes in float32, and its result goes through float16 and back. That is what
the typed graph means with float32 accumulation, as float16 kernels on a GPU have it, and every float16 number is a
float32 number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from face3d_trt.errors import GraphError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# their result's type stands in an attribute, or is that of a constant
TYPED_BY_THEMSELVES = {"Cast", "Constant", "ConstantOfShape"}


def round_explicitly(model: ModelProto) -> ModelProto:
    """Let every node compute in float32, and round its float16 results by casts of the graph's own.

    Args:
        model: The typed graph; it is not changed.

    Returns:
        A new graph of the same meaning, inputs and outputs. Without float16 in it, an equal copy.

    Raises:
        GraphError: The types inside the graph cannot be inferred.
    """
    import onnx

    half = {name for name, kind in _types(model).items() if kind == onnx.TensorProto.FLOAT16}
    nodes: list[NodeProto] = [_cast(name, _wide(name), "FLOAT") for name in _given(model) if name in half]
    for original in model.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        nodes.append(node)
        if node.op_type not in TYPED_BY_THEMSELVES:
            node.input[:] = [_wide(name) if name in half else name for name in node.input]
        for index, name in enumerate(node.output):
            if name not in half:
                continue
            if node.op_type not in TYPED_BY_THEMSELVES:
                node.output[index] = f"{name}/exact"
                nodes.append(_cast(node.output[index], name, "FLOAT16"))
            nodes.append(_cast(name, _wide(name), "FLOAT"))
    rounded = onnx.ModelProto()
    rounded.CopyFrom(model)
    del rounded.graph.node[:]
    rounded.graph.node.extend(nodes)
    return rounded


def _wide(name: str) -> str:
    return f"{name}/wide"


def _cast(source: str, target: str, kind: str) -> NodeProto:
    import onnx

    node: NodeProto = onnx.helper.make_node("Cast", [source], [target], name=target, to=getattr(onnx.TensorProto, kind))
    return node


def _given(model: ModelProto) -> list[str]:
    """What no node makes: inputs and weights."""
    return [value.name for value in (*model.graph.input, *model.graph.initializer)]


def _types(model: ModelProto) -> dict[str, int]:
    """ONNX element type of every tensor."""
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise GraphError(
            f"the types inside the typed ONNX cannot be inferred: {error}", run="face3d-trt build"
        ) from error
    values = (*graph.value_info, *graph.output, *graph.input)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    unknown = [node.name for node in graph.node if any(name and not types.get(name) for name in node.output)]
    if unknown:
        raise GraphError(
            f"the typed ONNX has {len(unknown)} nodes whose result type is unknown, the first is {unknown[0]}",
            run="face3d-trt build",
        )
    return types
