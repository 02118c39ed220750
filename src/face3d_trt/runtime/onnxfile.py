"""Questions to an ONNX file, answered without the onnx package: its metadata, and whether optimizations spoil it.

ONNX Runtime's optimizations move and merge Q/DQ pairs with fp16 around them, and the result is wrong. So the graphs
that `build` makes are run as they are written; the float32 graph of `export` is optimized. Field numbers: onnx.proto3.
"""

from __future__ import annotations

from collections.abc import Iterator

_GRAPH, _METADATA = 7, 14  # of ModelProto
_KEY, _VALUE = 1, 2  # of StringStringEntryProto
_NODE, _INITIALIZER = 1, 5  # of GraphProto
_OP_TYPE, _DATA_TYPE = 4, 2  # of NodeProto, of TensorProto
_LOW = {3, 10, 16}  # TensorProto.INT8, FLOAT16, BFLOAT16
_PAIRS = {b"QuantizeLinear", b"DequantizeLinear"}
_FIXED = {1: 8, 5: 4}  # bytes of a fixed-size field, by wire type


def is_typed(model: bytes) -> bool:
    """Whether weights are in low precision, or quantized pairs stand in the graph.

    Raises:
        ValueError: These bytes are no ONNX model.
    """
    graphs = [value for field, value in _fields(memoryview(model)) if field == _GRAPH]
    if len(graphs) != 1 or isinstance(graphs[0], int):
        raise ValueError("it holds no graph")
    for field, part in _fields(graphs[0]):
        if isinstance(part, int):
            continue
        if field == _NODE and any(
            name == _OP_TYPE and not isinstance(value, int) and bytes(value) in _PAIRS for name, value in _fields(part)
        ):
            return True
        if field == _INITIALIZER and any(name == _DATA_TYPE and value in _LOW for name, value in _fields(part)):
            return True
    return False


def metadata(model: bytes) -> dict[str, str]:
    """The model's metadata.

    Raises:
        ValueError: These bytes are no ONNX model.
    """
    found = {}
    for field, entry in _fields(memoryview(model)):
        if field == _METADATA and not isinstance(entry, int):
            parts = {name: bytes(text).decode() for name, text in _fields(entry) if not isinstance(text, int)}
            found[parts.get(_KEY, "")] = parts.get(_VALUE, "")
    return found


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field of a protobuf message; contents of texts and messages are not copied."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise ValueError("it is no protobuf message")
        if at + size > len(message):
            raise ValueError("it is cut off")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("it is cut off, or no protobuf message")
        byte = message[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
        shift += 7
