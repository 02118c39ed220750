"""int8 as users of ONNX Runtime make it on a CPU: its own static quantization."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from face3d_trt.errors import CalibrationError
from face3d_trt.faces.images import image_files, read_image
from face3d_trt.faces.samples import sample_crops
from face3d_trt.faces.tensor import to_input
from face3d_trt.names import CROP, IMAGE, INPUT
from face3d_trt.optional import require

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels

MOST = 32  # pictures: more cost minutes at full width
# From the pooling on: seven heads with next to no arithmetic, which lose more in int8 than all the rest (docs/int8.md).
_HEADS = ("ReduceMean", "GlobalAveragePool", "AveragePool", "Concat", "Reshape", "Flatten", "Gemm", "MatMul")
_HEAD_NAME = "final_layers"


def calibration_crops(folder: Path | None) -> Pixels:
    """The first pictures of a folder of aligned crops by name; None: the package's samples.

    Returns:
        (N, 224, 224, 3) uint8 RGB.

    Raises:
        CalibrationError: The folder has no such crops.
        ImageError: One of its pictures is damaged.
    """
    if folder is None:
        return sample_crops()
    names = image_files(folder)[0] if folder.is_dir() else ()
    crops = [crop for name in names[:MOST] if (crop := read_image(folder / name)).shape == (CROP, CROP, 3)]
    if not crops:
        raise CalibrationError(
            f"--calib {folder} has no aligned crops among its first {MOST} pictures",
            allowed=f"pictures of {CROP}x{CROP} px, as face3d-trt calib writes them",
            run=f"face3d-trt calib PHOTOS {folder}",
        )
    return np.stack(crops)


def quantize(onnx: Path, target: Path, calib: Path | None) -> Path:
    """Quantize a float32 graph: uint8 activations by percentile, int8 weights by channel, heads left in float32.

    Args:
        onnx: The graph of `export`, with outputs "coeffs".
        target: Where the quantized graph goes.
        calib: A folder of aligned crops; None: the package's samples.

    Returns:
        `target`.

    Raises:
        MissingError: onnx is not installed.
    """
    graph = require("onnx", "export", "quantizing for ONNX Runtime").load(onnx)
    quantization = require("onnxruntime.quantization", "cpu", "quantizing for ONNX Runtime")
    shapes = require("onnxruntime.quantization.shape_inference", "cpu", "quantizing for ONNX Runtime")
    layout = "uint8" if graph.graph.input[0].type.tensor_type.elem_type == 2 else "float32"  # TensorProto.UINT8
    prepared = target.with_name(f"prepared.{target.name}")
    shapes.quant_pre_process(str(onnx), str(prepared), skip_symbolic_shape=True)
    logging.getLogger().setLevel(logging.ERROR)  # it advises on what has been done
    quantization.quantize_static(
        str(prepared),
        str(target),
        _reader(quantization, calibration_crops(calib), layout),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        calibrate_method=quantization.CalibrationMethod.Percentile,
        nodes_to_exclude=_left_out(quantization, prepared),
        extra_options={"CalibStridedMinMax": 1},  # one picture's activations in memory at a time
    )
    return target


def _left_out(quantization: Any, path: Path) -> list[str]:
    """Heads, and what comes before the network's image: a front of uint8 pictures."""
    nodes = require("onnx", "export", "quantizing for ONNX Runtime").load(path).graph.node
    front = [IMAGE] if any(IMAGE in node.output for node in nodes) else []
    before = {node.name for node in nodes[: _position(nodes, front)]} if front else set()
    return [node.name for node in nodes if node.name in before or _HEAD_NAME in node.name or node.op_type in _HEADS]


def _position(nodes: Any, names: list[str]) -> int:
    return next(index for index, node in enumerate(nodes) if names[0] in node.output) + 1


def _reader(quantization: Any, crops: Pixels, layout: str) -> Any:
    """ONNX Runtime's CalibrationDataReader over pictures, one at a time."""

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._feeds: Iterator[dict[str, Any]] = iter(())

        def __len__(self) -> int:
            return len(crops)

        def set_range(self, start_index: int, end_index: int) -> None:
            rows = range(start_index, end_index)
            self._feeds = iter([{INPUT: to_input(crops[row : row + 1], layout)} for row in rows])

        def get_next(self) -> dict[str, Any] | None:
            return next(self._feeds, None)

    return Reader()
