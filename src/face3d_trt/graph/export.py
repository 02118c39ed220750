"""PyTorch to ONNX: one file with dynamic batch, height and width, proven before it gets its name."""

from __future__ import annotations

import ast
import logging
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import face3d_trt
from face3d_trt.errors import GraphError, UsageError
from face3d_trt.files import check_output, write_beside
from face3d_trt.graph.info import write_info
from face3d_trt.model.resolve import DEFAULT_MODEL
from face3d_trt.names import COEFFS, DEFAULT_ONNX, IMAGE, INPUT, MAX_BATCH, MAX_SIDE, MIN_SIDE, TEXTURE, VERTEX
from face3d_trt.optional import require
from face3d_trt.records import ModelInfo
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from onnx import ModelProto

    from face3d_trt.model.load import FaceModel
    from face3d_trt.model.reference import Reference

OPSET = 18  # what torch's exporter writes natively; older runtimes get a converted graph
EXAMPLE = (2, 256, 288)  # batch, height, width: all different, and none of them 1, so that none can be taken as fixed
_IMAGE_RANK = 4  # (batch, channels, height, width)
OUTPUTS = {"coeffs": (COEFFS,), "mesh": (COEFFS, VERTEX, TEXTURE)}


@dataclass(frozen=True)
class ExportOptions:
    """What `export_onnx` does.

    Attributes:
        model: Model directory or ModelScope id.
        outputs: `coeffs`, or `mesh` for `coeffs`, `vertex` and `texture`. A mesh graph embeds the morphable model's
            bases.
        input: `float32` (batch, 3, height, width) RGB 0..1, or `uint8` (batch, height, width, 3) RGB.
        output: The ONNX file.
        face: Write the morphable model beside it as well, for `reconstruct`, where the model has one.
    """

    model: str = DEFAULT_MODEL
    outputs: Literal["coeffs", "mesh"] = "coeffs"
    input: Literal["float32", "uint8"] = "float32"
    output: Path = Path(DEFAULT_ONNX)
    face: bool = True


def export_onnx(options: ExportOptions, report: Reporter = SILENT) -> ModelInfo:
    """Export a model and check the file against PyTorch, see `graph.check`.

    Returns:
        The facts that now stand in the file.

    Raises:
        ModelError: The model directory is not right.
        GraphError: The exported graph lost a dynamic dimension or differs from PyTorch; no file is left.
        MissingError: A package or the model cannot be had here.
        StorageError: The file cannot be written.
    """
    if options.outputs not in OUTPUTS or options.input not in ("float32", "uint8"):
        raise UsageError(
            f"outputs {options.outputs!r}, input {options.input!r}",
            allowed="outputs coeffs or mesh; input float32 or uint8",
            run="face3d-trt export --help",
        )
    if options.output.suffix != ".onnx":
        raise UsageError(f"the output {options.output} is not an .onnx file", run="face3d-trt export -o NAME.onnx")
    check_output(options.output)
    for package in ("torch", "onnx", "onnxscript"):
        require(package, "export", "export")
    require("onnxruntime", "cpu", "the check after export")
    from face3d_trt.graph.check import check_export
    from face3d_trt.graph.face import face_file_beside, face_file_of
    from face3d_trt.model.load import load_model
    from face3d_trt.model.reference import reference_module
    from face3d_trt.reconstruct.facefile import write_face_file

    report.stage(f"load     {options.model}")
    model = load_model(options.model, morphable=options.outputs == "mesh")
    face = face_file_of(options.model) if options.face else None
    reference = reference_module(model, options.outputs, options.input)
    info = model_info(model, options)
    report.stage(f"export   {options.output} (opset {OPSET}, dynamic batch, height, width)")
    graph = to_onnx(reference, options)
    write_info(graph, info)
    with write_beside(options.output) as temporary:
        require("onnx", "export", "export").save(graph, temporary)
        check_export(temporary, reference, options, report)
    if face is not None:
        report.stage(f"face     {face_file_beside(options.output)} (the morphable model, with its licence)")
        write_face_file(face_file_beside(options.output), face)
    return info


def to_onnx(reference: Reference, options: ExportOptions) -> ModelProto:
    """The graph of a float32 module, with readable names; not yet checked."""
    import torch

    batch, height, width = EXAMPLE
    shape = (batch, 3, height, width) if options.input == "float32" else (batch, height, width, 3)
    example = torch.rand(shape) if options.input == "float32" else torch.zeros(shape, dtype=torch.uint8)
    sides = {"height": torch.export.Dim("height", min=MIN_SIDE, max=MAX_SIDE)}
    sides["width"] = torch.export.Dim("width", min=MIN_SIDE, max=MAX_SIDE)
    first = 2 if options.input == "float32" else 1
    dynamic = {0: torch.export.Dim("batch", min=1, max=MAX_BATCH), first: sides["height"], first + 1: sides["width"]}
    with warnings.catch_warnings(), _quiet("torch.onnx", "onnxscript"):
        warnings.simplefilter("ignore")  # the exporter's own deprecations, nothing that a user can act on
        program = torch.onnx.export(
            reference,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=list(OUTPUTS[options.outputs]),
            dynamic_shapes=(dynamic,),
            external_data=False,
            verbose=False,
        )
    assert program is not None
    graph: Any = program.model_proto
    graph.producer_name, graph.producer_version = "face3d-trt", face3d_trt.__version__
    drop_unused(graph)
    pool_globally(graph)
    name_nodes(graph)
    return graph


def drop_unused(model: ModelProto) -> None:
    """Remove nodes and constants that no output depends on: leftovers of the exporter's shape assertions."""
    graph = model.graph
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):  # the nodes are in topological order
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    constants = [i for i in graph.initializer if i.name in needed]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(reversed(kept))
    graph.initializer.extend(constants)


def pool_globally(model: ModelProto) -> None:
    """Say "global average pool" where the exporter wrote the mean over height and width.

    The quantizer knows it under that name only; without a Q/DQ pair before it, the last stage's activations leave the
    int8 kernels in float. On an H200 with TensorRT 8.6 the pair gave 3 % of the int8 engine's throughput at batch 256.
    """
    from onnx import numpy_helper

    stored = {value.name: value for value in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "ReduceMean" or len(node.input) < 2 or node.input[1] not in stored:
            continue
        axes = sorted(int(axis) % _IMAGE_RANK for axis in numpy_helper.to_array(stored[node.input[1]]).ravel())
        kept = all(attribute.i == 1 for attribute in node.attribute if attribute.name == "keepdims")
        if axes == [2, 3] and kept:
            node.op_type = "GlobalAveragePool"
            del node.input[1:], node.attribute[:]
    drop_unused(model)


def name_nodes(model: ModelProto) -> None:
    """Name nodes and tensors after the modules they come from, and drop the exporter's traces.

    A convolution becomes `backbone.layer1.0.conv1/Conv`, its output the same with `:0`; a node of the morphable model
    `decode/MatMul`. The tensor that the uint8 front hands to the network is called `image`. Traces hold paths of this
    machine, and go.
    """
    graph = model.graph
    outer = {INPUT, *(o.name for o in graph.output)}
    renamed = {i.name: i.name.removeprefix("network.") for i in graph.initializer}
    used: Counter[str] = Counter()
    last_front: str | None = None
    for node in graph.node:
        scope = _scope(node)
        if node.op_type == "Conv":
            scope = renamed.get(node.input[1], scope).removesuffix(".weight")
        base = f"{scope}/{node.op_type}" if scope else node.op_type
        used[base] += 1
        node.name = base if used[base] == 1 else f"{base}_{used[base]}"
        for index, output in enumerate(node.output):
            if output and output not in outer:
                renamed[output] = f"{node.name}:{index}"
        if scope == "front":
            last_front = node.output[0]
        del node.metadata_props[:]
        node.doc_string = ""
    if last_front is not None:
        renamed[last_front] = IMAGE
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for value in (*graph.initializer, *graph.value_info):
        value.name = renamed.get(value.name, value.name)
    for item in (*graph.value_info, *graph.input, *graph.output, *graph.initializer, graph, model):
        del item.metadata_props[:]


def _scope(node: Any) -> str:
    """Dotted module path of a node, without `network.`, from the exporter's metadata; empty for shape arithmetic."""
    for item in node.metadata_props:
        if item.key == "pkg.torch.onnx.name_scopes":
            scopes: list[str] = ast.literal_eval(item.value)
            module = scopes[-2] if len(scopes) > 1 else ""
            return "" if module.startswith("_") else module.removeprefix("network").removeprefix(".")
    return ""


class _quiet:  # noqa: N801  a context manager used like a function
    """Silences loggers that speak of the exporter's internals."""

    def __init__(self, *names: str) -> None:
        self._loggers = [logging.getLogger(name) for name in names]

    def __enter__(self) -> None:
        self._levels = [logger.level for logger in self._loggers]
        for logger in self._loggers:
            logger.setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        for logger, level in zip(self._loggers, self._levels, strict=True):
            logger.setLevel(level)


def model_info(model: FaceModel, options: ExportOptions) -> ModelInfo:
    """The facts of a model, as the graph of these options carries them."""
    return ModelInfo(
        source=model.source,
        revision=model.revision,
        weights=model.weights,
        checkpoint_sha256=model.checkpoint_sha256,
        width=model.network.width,
        vertices=model.morphable.vertices if model.morphable is not None else 0,
        outputs=options.outputs,
        input=options.input,
        template=tuple((float(x), float(y), float(z)) for x, y, z in model.template),
        version=face3d_trt.__version__,
    )


def symbolic_dimensions(model: ModelProto) -> dict[str, list[str | int]]:
    """Names of the dynamic dimensions, and sizes of the fixed ones, of every input and output."""
    return {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }


def check_dynamic(model: ModelProto, options: ExportOptions) -> None:
    """Hold the declared dimensions against what was asked for.

    Raises:
        GraphError: A dimension that must be dynamic is a number.
    """
    image: list[str | int] = ["batch", 3, "height", "width"]
    expected: dict[str, list[str | int]] = {
        INPUT: image if options.input == "float32" else ["batch", "height", "width", 3]
    }
    found = symbolic_dimensions(model)
    fixed = [f"{name} {dims}" for name, dims in found.items() if dims[0] != "batch"]
    if found.get(INPUT) != expected[INPUT] or fixed:
        raise GraphError(
            f"the exporter fixed a dimension: {found}",
            allowed=f"{INPUT} {expected[INPUT]} and a dynamic batch in every output",
        )
