"""Make ONNX Runtime's CPU provider round where a typed graph says float16.

The CPU provider has no float16 kernel for Conv, Add and others. Its InsertCast pass, which no option turns off, puts casts
around each such node and then removes the pairs that meet: float16 → float32 between two of its own casts costs nothing and
changes nothing, it says. So a whole float16 network runs in float32 with float16 weights, at every optimization level,
ORT_DISABLE_ALL included (microsoft/onnxruntime#8787): no activation is rounded, and a value that overflows in float16 comes
out finite. A pair of casts that stands in the graph itself is kept. Putting one behind every float16 result does not change
what the graph means, since every float16 number is a float32 number, and makes ONNX Runtime compute it.
"""

from __future__ import annotations

from typing import Any

from face3d_trt.errors import GraphError


def round_explicitly(model: Any) -> Any:
    """Put Cast to float32, Cast to float16 behind every node whose result is float16.

    Args:
        model: An `onnx.ModelProto`; it is not changed.

    Returns:
        A new `onnx.ModelProto` of the same meaning, inputs and outputs. Without float16 in it, an equal copy.

    Raises:
        GraphError: The types inside the graph cannot be inferred.
    """
    import onnx

    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    types = _result_types(model)
    outputs = {value.name for value in model.graph.output}
    nodes = []
    for original in model.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        nodes.append(node)
        for index, name in enumerate(node.output):
            if types.get(name) != half or name in outputs:
                continue
            exact, wide = f"{name}/exact", f"{name}/wide"
            node.output[index] = exact
            nodes.append(onnx.helper.make_node("Cast", [exact], [wide], name=f"{name}/to_float32", to=single))
            nodes.append(onnx.helper.make_node("Cast", [wide], [name], name=f"{name}/to_float16", to=half))
    rounded = onnx.ModelProto()
    rounded.CopyFrom(model)
    del rounded.graph.node[:]
    rounded.graph.node.extend(nodes)
    return rounded


def _result_types(model: Any) -> dict[str, int]:
    """ONNX element type of every node's result."""
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise GraphError(
            f"the types inside the typed ONNX cannot be inferred: {error}", run="face3d-trt build"
        ) from error
    types = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}
    unknown = [node.name for node in graph.node if any(name and not types.get(name) for name in node.output)]
    if unknown:
        raise GraphError(
            f"the typed ONNX has {len(unknown)} nodes whose result type is unknown, the first is {unknown[0]}",
            run="face3d-trt build",
        )
    return types
