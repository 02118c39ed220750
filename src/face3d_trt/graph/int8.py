"""float32 → Q/DQ int8 by ModelOpt, calibrated on aligned faces with ONNX Runtime on the CPU."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from face3d_trt.graph.counts import operations
from face3d_trt.graph.fp16 import Typed
from face3d_trt.graph.keep import keep_higher
from face3d_trt.graph.modelopt import Room, modelopt_room
from face3d_trt.records import KeptNode
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Method = Literal["output", "entropy", "max"]
METHODS: tuple[Method, ...] = ("output", "entropy", "max")
RECOMMENDED_IMAGES = 500  # NVIDIA's figure for CNN classifiers
FEW_IMAGES = 100
_BATCH = 4  # every activation of a batch is held at once


@dataclass(frozen=True)
class Levers:
    """What the method "output" does; docs/int8.md has the measurements behind the defaults.

    Args:
        searched: Pictures of the range search; twice as many change the error by less than a twentieth.
        spared: Share of the multiply-adds that may stay higher where that helps most: in a ResNet the heads, which
            read pooled features.
        spared_reads: Share of the int8 activations, each counted as often as it is read, that additions and poolings
            may read in higher precision where that helps most: in a ResNet50 the last three of them.
        worth: Relative error of the output, by such an addition or pooling alone, from which that is done. Errors add
            as squares, so 3 % is a tenth of the 10 % that the gate allows.
    """

    searched: int = 12
    spared: float = 0.005
    spared_reads: float = 0.02
    worth: float = 0.03


def to_int8(
    network: ModelProto,
    image: str,
    crops: np.ndarray,
    method: Method,
    *,
    high_precision: Literal["fp16", "fp32"],
    levers: Levers = Levers(),
    report: Reporter = SILENT,
) -> Typed:
    """Insert Q/DQ pairs around convolutions, pooling and residual adds; input and output stay float32.

    Args:
        network: float32.
        image: Name of its input.
        crops: (N, height, width, 3) uint8 RGB aligned faces.
        method: How ranges are found: "output" takes those at which the network's output changes least; "entropy" and
            "max" are ModelOpt's own.
        high_precision: Type of everything that is not quantized.
        levers: Of the method "output".
        report: Hears progress.

    Raises:
        MissingError: ModelOpt is not installed.
        BuildError: ModelOpt failed.
    """
    with modelopt_room("INT8 calibration") as room:
        if method == "output":
            return _by_output(network, image, _in_order(crops), levers, high_precision, room, report)
        quantized = _insert(network, image, crops, room, method=method, high_precision=high_precision, report=report)
        return Typed(quantized, _kept(quantized, room.lines))


def _by_output(
    network: ModelProto,
    image: str,
    crops: np.ndarray,
    levers: Levers,
    high_precision: Literal["fp16", "fp32"],
    room: Room,
    report: Reporter,
) -> Typed:
    from face3d_trt.faces.tensor import to_input
    from face3d_trt.graph.macs import multiply_adds
    from face3d_trt.graph.ranges import find_ranges
    from face3d_trt.graph.spare import spare_convolutions, spare_readers

    # which tensors ModelOpt quantizes does not depend on the pictures
    tensors = quantized_tensors(_insert(network, image, crops[:1], room, method="max", high_precision="fp32"))
    seen = crops[: levers.searched]
    pictures = to_input(seen, "float32")
    ranges = find_ranges(network, image, tensors, pictures, report)
    spared = spare_convolutions(network, ranges, multiply_adds(network, *crops.shape[1:3]), levers.spared)
    read = spare_readers(
        network, image, ranges, pictures, allowed=levers.spared_reads, worth=levers.worth, report=report
    )
    quantized = _insert(
        network, image, crops[:1], room, method="max", high_precision=high_precision, excluded=tuple(spared)
    )
    set_ranges(quantized, {name: found.widest for name, found in ranges.items()})
    # an addition that ModelOpt is told to leave out still reads the pair that the next convolution reads
    quantized = keep_higher(quantized, network, read)
    note = (
        f"{len(ranges)} ranges by what the output loses on {len(seen)} faces; "
        f"{len(spared)} small convolutions left in {high_precision}"
    )
    note += f", and {len(read)} additions or poolings" if read else ""
    reasons = {
        name: f"its input loses {loss**0.5:.1%} in int8, and it does {share:.3%} of the multiply-adds"
        for name, (loss, share) in spared.items()
    }
    kept = [
        KeptNode(node=each.node, reason=reasons.get(each.node, each.reason)) for each in _kept(quantized, room.lines)
    ]
    kept += [
        KeptNode(
            node=name,
            reason=f"alone it changes the output by {loss**0.5:.1%} in int8, and reads {share:.1%} of the activations",
        )
        for name, (loss, share) in read.items()
    ]
    return Typed(quantized, tuple(kept), note)


def _insert(
    network: ModelProto,
    image: str,
    crops: np.ndarray,
    room: Room,
    *,
    method: Literal["entropy", "max"],
    high_precision: Literal["fp16", "fp32"],
    excluded: tuple[str, ...] = (),
    report: Reporter = SILENT,
) -> ModelProto:
    """Q/DQ pairs by ModelOpt."""
    import onnx
    from modelopt.onnx.quantization import quantize

    source, target = room.folder / "network.onnx", room.folder / "network.int8.onnx"
    onnx.save(network, source)
    height, width = crops.shape[1:3]
    quantize(
        str(source),
        "int8",
        calibration_method=method,
        calibration_data_reader=_reader(image, crops, report),
        calibration_shapes=f"{image}:1x3x{height}x{width}",
        calibration_eps=["cpu"],  # the CUDA provider can crash, the TensorRT provider aborts beside RTX
        high_precision_dtype=high_precision,
        nodes_to_exclude=[f"^{re.escape(name)}$" for name in excluded],
        output_path=str(target),
        passes=["concat_elimination"],
        log_level="DEBUG",
    )
    return onnx.load(target)


def quantized_tensors(network: ModelProto) -> list[str]:
    """The activations that a Q/DQ pair stands on, in the order of the graph."""
    return list(dict.fromkeys(_tensor_of(node) for node in _quantizers(network)))


def set_ranges(network: ModelProto, ranges: dict[str, float]) -> None:
    """Write the scale of each quantized activation, in the type that it has.

    Args:
        network: With Q/DQ pairs of ModelOpt; it is changed.
        ranges: The absolute value that becomes 127, by the name in the float32 network; others may be among them.

    Raises:
        KeyError: A quantized activation has no range.
    """
    from onnx import numpy_helper

    stored = {tensor.name: tensor for tensor in network.graph.initializer}
    pairs = {node.input[0]: node for node in network.graph.node if node.op_type == "DequantizeLinear"}
    for node in _quantizers(network):
        scale = ranges[_tensor_of(node)] / 127
        for name in {node.input[1], pairs[node.output[0]].input[1]}:  # with fp16 they are two
            value = numpy_helper.to_array(stored[name])
            stored[name].CopyFrom(numpy_helper.from_array(np.full_like(value, scale), name))


def _quantizers(network: ModelProto) -> list[NodeProto]:
    """The QuantizeLinear nodes of activations."""
    stored = {tensor.name for tensor in network.graph.initializer}
    return [node for node in network.graph.node if node.op_type == "QuantizeLinear" and node.input[0] not in stored]


def _tensor_of(quantizer: NodeProto) -> str:
    """What it quantizes. Its name tells: its input may be a cast to fp16 that ModelOpt has put between."""
    return str(quantizer.name).removesuffix("_QuantizeLinear")


def _in_order(crops: np.ndarray) -> np.ndarray:
    """Sorted by what the pixels are, whatever the files were called."""
    return crops[sorted(range(len(crops)), key=lambda index: hashlib.sha256(crops[index].tobytes()).digest())]


def _reader(image: str, crops: np.ndarray, report: Reporter) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    from face3d_trt.faces.tensor import to_input

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        """Makes one small float32 batch at a time, in an order that depends on the pixels alone."""

        def __init__(self) -> None:
            self.crops = _in_order(crops)
            self.rewind()

        def batches(self) -> Iterator[dict[str, np.ndarray]]:
            for start in range(0, len(crops), _BATCH):
                chosen = self.crops[start : start + _BATCH]
                yield {image: to_input(chosen, "float32")}
                report.progress("calibrating", start + len(chosen), len(crops))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.iterator, None)

        def get_first(self) -> dict[str, np.ndarray]:
            return {image: to_input(self.crops[:1], "float32")}

        def rewind(self) -> None:
            self.iterator = self.batches()

    return Reader()


def _kept(network: ModelProto, lines: list[str]) -> tuple[KeptNode, ...]:
    """The convolutions that ModelOpt left unquantized, with what it said about each."""
    kept = []
    for operation in operations(network):
        if operation.convolution and operation.precision != "int8":
            said = [line for line in lines if line.endswith((f": {operation.name}", f" {operation.name}"))]
            kept.append(KeptNode(node=operation.name, reason=said[0] if said else "left unquantized by ModelOpt"))
    return tuple(kept)
