"""The uint8 front in the form that TensorRT 8.6 runs fastest.

TensorRT 8.6 gives the cast of the input to one of its two compilers and the transposition to the other. So the picture
goes through memory three times, and its transposition kernel is slow for three channels. Gathering each channel keeps
everything in one kernel; and where the picture is quantized next, the division is a matter of the scale. On an H200, at
batch 256, uint8 input cost 7 % of the int8 engine's time before and 3 % in this form; docs/gpu-proof.md has the forms
that were tried. Strongly typed versions were not measured and are given the front as it was exported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.names import IMAGE, INPUT

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_CHANNELS = 3
_NHWC_TO_NCHW = (0, 3, 1, 2)


def gather_channels(model: ModelProto) -> bool:
    """Rewrite the front of a joined graph; what it computes stays the same.

    Args:
        model: float32, or float32 with Q/DQ pairs; it is changed.

    Returns:
        Whether it has a front, `Cast` → `Transpose` → `Div` → `image`.
    """
    from onnx import helper, numpy_helper

    nodes = model.graph.node
    chain = _chain(model)
    if chain is None:
        return False
    cast, transpose, divide = chain
    planes: list[NodeProto] = []
    for channel in range(_CHANNELS):
        index = numpy_helper.from_array(np.array([channel], np.int64), f"front/channel_{channel}")
        model.graph.initializer.append(index)
        gathered, plane = f"front/Gather_{channel}:0", f"front/Transpose_{channel}:0"
        planes.append(_node("Gather", [cast.output[0], index.name], gathered, axis=3))
        planes.append(_node("Transpose", [gathered], plane, perm=_NHWC_TO_NCHW))
    names = [f"front/Transpose_{channel}:0" for channel in range(_CHANNELS)]
    planes.append(helper.make_node("Concat", names, [transpose.output[0]], name="front/Concat", axis=1))
    where = list(nodes).index(transpose)
    rest = [node for node in nodes if node is not transpose]
    del nodes[:]
    nodes.extend([*rest[:where], *planes, *rest[where:]])
    _quantize_pixels(model, divide)
    return True


def _chain(model: ModelProto) -> tuple[NodeProto, NodeProto, NodeProto] | None:
    """Cast, transposition and division, each the only reader of the former."""
    made = {output: node for node in model.graph.node for output in node.output}
    divide = made.get(IMAGE)
    transpose = made.get(divide.input[0]) if divide is not None and divide.op_type == "Div" else None
    cast = made.get(transpose.input[0]) if transpose is not None and transpose.op_type == "Transpose" else None
    if divide is None or transpose is None or cast is None or cast.op_type != "Cast" or cast.input[0] != INPUT:
        return None
    return cast, transpose, divide


def _quantize_pixels(model: ModelProto, divide: NodeProto) -> None:
    """Where a QuantizeLinear alone reads `image`: let it read what is divided, with as many times the scale.

    round(x / 255 / s) becomes round(x / (255 s)): the same, unless a quotient lies within its last bit of the middle
    between two steps.
    """
    from onnx import numpy_helper

    readers = [node for node in model.graph.node if IMAGE in node.input]
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    if len(readers) != 1 or readers[0].op_type != "QuantizeLinear":
        return
    quantize, divisor = readers[0], numpy_helper.to_array(stored[divide.input[1]])
    scale = numpy_helper.to_array(stored[quantize.input[1]])
    wide = numpy_helper.from_array((scale * divisor.reshape(())).astype(scale.dtype), "front/scale")
    model.graph.initializer.append(wide)
    quantize.input[0], quantize.input[1] = divide.input[0], wide.name
    model.graph.node.remove(divide)
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _node(kind: str, inputs: list[str], output: str, **attributes: object) -> NodeProto:
    from onnx import helper

    node: NodeProto = helper.make_node(kind, inputs, [output], name=output.removesuffix(":0"), **attributes)
    return node
