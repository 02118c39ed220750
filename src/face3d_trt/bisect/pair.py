"""A float32 graph and its typed form, node by node: what each typed node makes of float32 inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from face3d_trt.errors import GraphError
from face3d_trt.graph.keep import element_types
from face3d_trt.names import COEFFS, INPUT
from face3d_trt.parity.rounding import round_explicitly

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = npt.NDArray[Any]
_FRONT = "front/"  # names of the uint8 front's nodes begin so
_SILENT = 4  # ONNX Runtime: fatal only


class Pair:
    """Both graphs; the typed one with every fp16 result rounded by casts of its own (parity/rounding.py).

    A typed node is one whose name the float32 graph has. What stands between two such nodes (Q/DQ pairs, casts, and
    whatever else was put there) belongs to the one that reads it. Nodes of the uint8 front may be missing: TensorRT 8.6
    is given another front.

    Args:
        exact: float32.
        typed: Made from it.

    Raises:
        GraphError: A node of the float32 graph has no counterpart: the graphs do not belong together.
    """

    def __init__(self, exact: ModelProto, typed: ModelProto) -> None:
        self.exact, self.typed = exact, typed
        self.rounded = round_explicitly(typed)
        self._kinds = element_types(exact)
        self.nodes = {node.name: node for node in exact.graph.node}
        self._typed_nodes = {node.name: node for node in self.rounded.graph.node if node.name in self.nodes}
        missing = [name for name in self.nodes if name not in self._typed_nodes]
        if lost := [name for name in missing if not name.startswith(_FRONT)]:
            raise GraphError(
                f"the typed graph has no node {lost[0]}, nor {len(lost) - 1} others of the float32 graph",
                allowed="a typed graph and the float32 graph that it was made from",
                run="face3d-trt bisect --plan PLAN",
            )
        self.nodes = {name: node for name, node in self.nodes.items() if name in self._typed_nodes}
        self._makers = {name: node for node in self.rounded.graph.node for name in node.output}
        self._stored = {tensor.name: tensor for tensor in self.rounded.graph.initializer}
        self._origin = {
            made: original
            for name, node in self._typed_nodes.items()
            for made, original in zip(node.output, self.nodes[name].output, strict=True)
        }

    def alone(self, name: str) -> tuple[ModelProto, dict[str, str]]:
        """The typed node with all that belongs to it, as a graph.

        Returns:
            The graph, with the node's first output rounded as the typed graph has it; and for each of its inputs the
            tensor of the float32 graph that it takes.
        """
        from onnx import helper

        node = self._typed_nodes[name]
        inside: list[NodeProto] = [node]
        given: dict[str, str] = {}
        stored: dict[str, Any] = {}
        pending, seen = list(node.input), set()
        while pending:
            tensor = pending.pop()
            if not tensor or tensor in seen:
                continue
            seen.add(tensor)
            if tensor in self._stored:
                stored[tensor] = self._stored[tensor]
            elif tensor in self._origin:
                given[tensor] = self._origin[tensor]
            elif tensor in self._makers:
                inside.append(self._makers[tensor])
                pending += self._makers[tensor].input
            else:
                given[tensor] = tensor  # the input of the whole
        order = {id(each): at for at, each in enumerate(self.rounded.graph.node)}
        made = node.output[0]
        if made.endswith("/exact"):  # rounded to fp16 behind the node
            half, wide = made.removesuffix("/exact"), f"{made.removesuffix('/exact')}/wide"
            inside += [self._makers[half], self._makers[wide]]
            made = wide
        graph = helper.make_graph(
            sorted(inside, key=lambda each: order.get(id(each), 0)),
            "alone",
            [helper.make_tensor_value_info(each, self._kinds[source], None) for each, source in given.items()],
            [helper.make_tensor_value_info(made, self._kinds[self.nodes[name].output[0]], None)],
            list(stored.values()),
        )
        return self._model(graph), given

    def quantizers(self, name: str) -> list[tuple[int, NodeProto, NodeProto]]:
        """For each input of a typed node that reads a Q/DQ pair: its index, the Q, and the DQ."""
        found = []
        for index, tensor in enumerate(self._typed_nodes[name].input):
            pair: list[NodeProto] = []
            while tensor in self._makers and tensor not in self._origin and len(pair) < 2:
                maker = self._makers[tensor]
                if maker.op_type == ("DequantizeLinear", "QuantizeLinear")[len(pair)]:
                    pair.append(maker)
                tensor = maker.input[0]
            if len(pair) == 2:
                found.append((index, pair[1], pair[0]))
        return found

    def step(self, name: str, index: int) -> float | None:
        """The scale of the Q/DQ pair at an input of a typed node; None: it has none, or one for each channel.

        It is the Q's, unless the Q reads something else than the float32 node's input: the front for TensorRT 8.6
        leaves a division to the scale, and then the DQ tells what a step is worth.
        """
        pairs = {at: (quantizer, back) for at, quantizer, back in self.quantizers(name)}
        if index not in pairs:
            return None
        quantizer, back = pairs[index]
        source = quantizer.input[0]
        while source in self._makers and source not in self._origin and self._makers[source].op_type == "Cast":
            source = self._makers[source].input[0]
        direct = self._origin.get(source, source) == self.nodes[name].input[index]
        scale = self.constant((quantizer if direct else back).input[1])
        return float(scale.reshape(())) if scale is not None and scale.size == 1 else None

    def constant(self, tensor: str) -> Array | None:
        """A stored tensor of the rounded typed graph, through the casts before it; None: it is not stored."""
        from onnx import numpy_helper

        while tensor in self._makers and self._makers[tensor].op_type == "Cast":
            tensor = self._makers[tensor].input[0]
        return numpy_helper.to_array(self._stored[tensor]) if tensor in self._stored else None

    def single(self, name: str) -> ModelProto:
        """The float32 node, as a graph whose inputs are all that it reads."""
        from onnx import helper

        node = self.nodes[name]
        shapes = {tensor.name: list(tensor.dims) for tensor in self.exact.graph.initializer}
        read = dict.fromkeys(filter(None, node.input))
        inputs = [helper.make_tensor_value_info(each, self._kinds[each], shapes.get(each)) for each in read]
        output = helper.make_tensor_value_info(node.output[0], self._kinds[node.output[0]], None)
        return self._model(helper.make_graph([node], "single", inputs, [output]))

    def rest(self, tensor: str) -> tuple[ModelProto, tuple[str, ...]]:
        """All of the float32 graph that depends on `tensor`, up to the coefficients, and what else it needs."""
        from onnx import TensorProto, helper

        reached, nodes = {tensor}, []
        for node in self.exact.graph.node:
            if reached.intersection(node.input):
                reached.update(node.output)
                nodes.append(node)
        used = dict.fromkeys(name for node in nodes for name in node.input if name)
        stored = [value for value in self.exact.graph.initializer if value.name in used]
        names = {value.name for value in stored}
        needed = tuple(name for name in used if name not in reached | names)
        graph = helper.make_graph(
            nodes,
            "rest",
            [helper.make_tensor_value_info(name, self._kinds[name], None) for name in (tensor, *needed)],
            [helper.make_tensor_value_info(COEFFS, TensorProto.FLOAT, None)],
            stored,
        )
        return self._model(graph), needed

    def _model(self, graph: Any) -> ModelProto:
        from onnx import helper

        source = self.exact if graph.name != "alone" else self.rounded
        model: ModelProto = helper.make_model(
            graph, opset_imports=list(source.opset_import), ir_version=source.ir_version
        )
        return model


def run(
    model: ModelProto, feed: Mapping[str, Array], outputs: Sequence[str] = (), *, exact: bool = False
) -> list[Array]:
    """Outputs of ONNX Runtime, all or those named.

    Args:
        model: A graph.
        feed: Its inputs.
        outputs: Names; (): all.
        exact: A float32 graph, which may be optimized; others run as they are written.
    """
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if exact else level.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(list(outputs) or None, dict(feed))
    return results


def up_to_coefficients(model: ModelProto) -> ModelProto:
    """The graph without what comes after the coefficients."""
    read, nodes = {COEFFS}, []
    for node in reversed(model.graph.node):
        if read.intersection(node.output):
            read.update(node.input)
            nodes.append(node)
    cut = type(model)()
    cut.CopyFrom(model)
    for field in ("node", "initializer", "output"):
        cut.graph.ClearField(field)
    cut.graph.node.extend(reversed(nodes))
    cut.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    cut.graph.output.extend(value for value in model.graph.output if value.name == COEFFS)
    return cut


def activations(exact: ModelProto, pictures: Array, tensors: Iterable[str]) -> dict[str, Array]:
    """Values of the float32 graph's tensors for pictures as it takes them."""
    from face3d_trt.graph.activations import Probe

    return Probe(exact, tensors).run({INPUT: pictures})
