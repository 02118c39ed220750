"""ONNX bytes to a network in TensorRT's hands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from face3d_trt.engine.api import has
from face3d_trt.engine.callbacks import speaking_to
from face3d_trt.engine.messages import Messages
from face3d_trt.engine.values import Parsed
from face3d_trt.errors import GraphError

if TYPE_CHECKING:
    from face3d_trt.engine import api


def parse(trt: api.Module, title: str, onnx: bytes, name: str) -> Parsed:
    """Read the bytes of an ONNX file; `Flavour.parse` has the description."""
    messages = Messages()
    with speaking_to(trt, messages) as logger:
        builder = trt.Builder(logger)
        network = builder.create_network(_network_flags(trt))
        parser = trt.OnnxParser(network, builder.logger)
        if not parser.parse(onnx):
            errors = [_describe(trt, parser.get_error(index)) for index in range(parser.num_errors)]
            raise GraphError(
                f"{title} cannot read {name}:\n    " + "\n    ".join(errors or messages.errors()),
                run="face3d-trt export, then build again",
            )
    return Parsed(network, builder, parser, messages)


def _network_flags(trt: api.Module) -> int:
    """A dynamic batch, which before 10 has to be asked for; and the graph's types, where they can bind."""
    creation, flags = trt.NetworkDefinitionCreationFlag, 0
    if has(trt, "NetworkDefinitionCreationFlag.EXPLICIT_BATCH"):
        flags |= 1 << int(creation.EXPLICIT_BATCH)
    if has(trt, "NetworkDefinitionCreationFlag.STRONGLY_TYPED"):
        flags |= 1 << int(creation.STRONGLY_TYPED)
    return flags


def _describe(trt: api.Module, error: api.ParserError) -> str:
    if has(trt, "ParserError.node_name"):
        return f"node {error.node_name() or error.node()} ({error.node_operator()}): {error.desc()}"
    return f"node number {error.node()}: {error.desc()}" if error.node() >= 0 else str(error.desc())
