"""Which graphs to bisect: those of a plan's manifest, or those that are named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.bisect.again import build_command
from face3d_trt.bisect.run import Graphs, bisect
from face3d_trt.errors import UsageError
from face3d_trt.files import check_output, output_lock
from face3d_trt.graph.info import load_graph, read_info
from face3d_trt.graph.precision import float32_path, record_path
from face3d_trt.parity.candidates import files_of, present
from face3d_trt.parity.judging import JudgeOptions, any_judge
from face3d_trt.records import BisectRecord, Manifest, TypedRecord, manifest_path
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from onnx import ModelProto

    from face3d_trt.records import Precision


@dataclass(frozen=True)
class BisectOptions:
    """What to bisect.

    Args:
        plan: A plan with its manifest beside it; None: `typed` is named.
        typed: A typed graph.
        onnx: The float32 graph that `typed` was made from; None: the one of the usual name beside it.
        images: A photo, a crop or a folder; None: the package's sample faces.
        model: Directory or ModelScope id; None: the one that was exported.
        limits: A file like `limits.json`; None: the package's.
        limit: The most pictures that are taken of a folder.
        most: The most nodes in a list that counts as passed; None: any number.
        output: The list; None: `<typed>.keep.json`.
    """

    plan: Path | None = None
    typed: Path | None = None
    onnx: Path | None = None
    images: Path | None = None
    model: str | None = None
    limits: Path | None = None
    limit: int = 16
    most: int | None = None
    output: Path | None = None


def bisect_files(options: BisectOptions, report: Reporter = SILENT) -> tuple[BisectRecord, Path]:
    """Bisect and write the list, with what was found in it; an interrupted run is taken up where it was.

    Returns:
        What was found, and where it was written.

    Raises:
        UsageError: Not one of `plan` and `typed` is named; a graph, a plan or pictures that do not serve.
        MissingError: ONNX Runtime or polygraphy is not installed; or nothing can be written.
    """
    present([options.plan] if options.plan is not None else [], options.images)
    graphs = find_graphs(options)
    output = options.output or graphs.typed_path.with_suffix(".keep.json")
    check_output(output)
    judged = JudgeOptions(
        read_info(graphs.exact, str(graphs.onnx)),
        graphs.typed_path,
        graphs.precision,
        options.images,
        options.model,
        options.limits,
        options.limit,
    )
    with output_lock(output):
        judge = any_judge(graphs.onnx, judged, report)
        state = output.with_name(f"{output.name}.state")
        record = bisect(graphs, judge, state, options.most, report)
        if record.passed and not record.passed_before:
            record = record.model_copy(update={"build": build_command(options, graphs, output)})
        record.write(output)
    return record, output


def find_graphs(options: BisectOptions) -> Graphs:
    """Both graphs, read.

    Raises:
        UsageError: Not one of `plan` and `typed` is named.
        PlanError: The manifest or one of its files is missing.
        GraphError: A graph is missing, or is none.
    """
    if (options.plan is None) == (options.typed is None):
        raise UsageError(
            "what is to be bisected?",
            allowed="--plan FILE, or --typed FILE with its float32 graph",
            run="face3d-trt bisect --plan engines/face3d_resnet50.int8.plan",
        )
    if options.plan is not None:
        manifest = Manifest.read(manifest_path(options.plan))
        files = files_of(options.plan, manifest, plan_alone=False)
        assert files.typed is not None
        assert files.onnx is not None
        return graphs_of(files.onnx, files.typed, manifest.precision)
    assert options.typed is not None
    return graphs_of(options.onnx or float32_path(options.typed), options.typed)


def graphs_of(onnx: Path, typed: Path, precision: Precision | None = None) -> Graphs:
    """Read both files.

    Args:
        onnx: float32.
        typed: Made from it.
        precision: That it was made in; None: what its record says, else what stands in it.
    """
    exact, exact_hash = load_graph(onnx)
    graph, typed_hash = load_graph(typed)
    record = TypedRecord.read(record_path(typed)) if record_path(typed).is_file() else None
    if precision is None:
        precision = record.precision if record is not None else _precision(graph)
    kept = tuple(each for each in record.kept if each.asked) if record is not None else ()
    method = record.calibration.method if record is not None and record.calibration is not None else None
    return Graphs(onnx, exact, exact_hash, typed, graph, typed_hash, precision, method, kept)


def _precision(graph: ModelProto) -> Precision:
    from onnx import TensorProto

    if any(node.op_type == "QuantizeLinear" for node in graph.graph.node):
        return "int8"
    half = any(tensor.data_type == TensorProto.FLOAT16 for tensor in graph.graph.initializer)
    return "fp16" if half else "fp32"
