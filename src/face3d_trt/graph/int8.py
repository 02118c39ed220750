"""float32 → Q/DQ int8 by ModelOpt, calibrated on aligned faces with ONNX Runtime on the CPU."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from face3d_trt.graph.counts import operations
from face3d_trt.graph.fp16 import Typed
from face3d_trt.graph.modelopt import modelopt_room
from face3d_trt.records import KeptNode
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

Method = Literal["entropy", "max"]
METHODS: tuple[Method, ...] = ("entropy", "max")
RECOMMENDED_IMAGES = 500  # NVIDIA's figure for CNN classifiers
FEW_IMAGES = 100
_BATCH = 4  # every activation of a batch is held at once


def to_int8(
    network: ModelProto,
    image: str,
    crops: np.ndarray,
    method: Method,
    *,
    high_precision: Literal["fp16", "fp32"],
    report: Reporter = SILENT,
) -> Typed:
    """Insert Q/DQ pairs around convolutions, pooling and residual adds; input and output stay float32.

    Args:
        network: float32.
        image: Name of its input.
        crops: (N, height, width, 3) uint8 RGB aligned faces.
        method: How ranges are found: by entropy, or the largest value.
        high_precision: Type of everything that is not quantized.
        report: Hears progress.

    Raises:
        MissingError: ModelOpt is not installed.
        BuildError: ModelOpt failed.
    """
    import onnx

    with modelopt_room("INT8 calibration") as room:
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
            output_path=str(target),
            passes=["concat_elimination"],
            log_level="DEBUG",
        )
        quantized = onnx.load(target)
        return Typed(quantized, _kept(quantized, room.lines))


def _reader(image: str, crops: np.ndarray, report: Reporter) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    from face3d_trt.faces.tensor import to_input

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        """Makes one small float32 batch at a time, in an order that depends on the pixels alone."""

        def __init__(self) -> None:
            self.order = sorted(range(len(crops)), key=lambda index: hashlib.sha256(crops[index].tobytes()).digest())
            self.rewind()

        def batches(self) -> Iterator[dict[str, np.ndarray]]:
            for start in range(0, len(crops), _BATCH):
                chosen = self.order[start : start + _BATCH]
                yield {image: to_input(crops[chosen], "float32")}
                report.progress("calibrating", start + len(chosen), len(crops))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.iterator, None)

        def get_first(self) -> dict[str, np.ndarray]:
            return {image: to_input(crops[self.order[:1]], "float32")}

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
