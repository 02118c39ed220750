"""Measure what each lever of int8 calibration is worth on a network, and print the table of docs/int8.md.

    python tools/int8_levers.py engines/face3d_resnet50.onnx calibration/ unseen/

Both sets are folders of aligned crops, or .npz files whose `p` is (N, 3, height, width) uint8 RGB. The error of a group
of coefficients is the norm of (int8 - float32) over the norm of (float32 - its mean over the pictures).
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from equalize import channel_widths, equalize

from face3d_trt.faces.collect import collect_faces
from face3d_trt.faces.tensor import to_input
from face3d_trt.graph.info import read_info
from face3d_trt.graph.int8 import Levers, quantized_tensors, to_int8
from face3d_trt.graph.macs import int8_share
from face3d_trt.graph.parts import split
from face3d_trt.parity.rounding import round_explicitly

GROUPS = {
    "identity": slice(0, 80),
    "expression": slice(80, 144),
    "texture": slice(144, 224),
    "angle": slice(224, 227),
    "lighting": slice(227, 254),
    "translation": slice(254, 257),
}
LEVEL = onnxruntime.GraphOptimizationLevel


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("onnx", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("unseen", type=Path)
    parser.add_argument("--images", type=int, default=64, help="calibration pictures")
    parser.add_argument("--only", default="", help="the rows that contain this")
    chosen = parser.parse_args()
    model = onnx.load(chosen.onnx)
    parts = split(model)
    network, image = parts.network, parts.image
    calibration = read(chosen.calibration, chosen.onnx)[: chosen.images]
    unseen = read(chosen.unseen, chosen.onnx)
    exact = run(network, unseen)
    noise = np.random.default_rng(0).integers(0, 256, calibration.shape, np.uint8)

    def typed(source: Any = network, crops: np.ndarray = calibration, method: Any = "output", **levers: Any) -> Any:
        precision = levers.pop("precision", "fp32")
        return to_int8(source, image, crops, method, high_precision=precision, levers=Levers(**levers)).network

    @functools.cache
    def default(precision: str = "fp32") -> Any:
        return typed(precision=precision)

    def equal(alpha: float) -> Any:
        tensors = quantized_tensors(typed(crops=calibration[:1], method="max"))
        singly = (to_input(crop[None], "float32") for crop in calibration[:32])
        network_too = equalize(network, channel_widths(network, image, singly, tensors), alpha)
        assert np.array_equal(run(network_too, unseen[:8], as_written=True), run(network, unseen[:8], as_written=True))
        return network_too

    rows: dict[str, Callable[[], Any]] = {
        "max": lambda: typed(method="max"),
        "entropy": lambda: typed(method="entropy"),
        "channels equalized, max": lambda: typed(equal(0.5), method="max"),
        "channels equalized, entropy": lambda: typed(equal(0.5), method="entropy"),
        "ranges by output": lambda: typed(spared=0),
        "ranges by output, channels equalized": lambda: typed(equal(0.5), spared=0),
        "ranges by output, heads higher: the default": default,
        "default, weights only": lambda: without(default(), weights=False),
        "default, activations only": lambda: without(default(), weights=True),
        "default, fp16 between": lambda: default("fp16"),
        "default, fp16 between, ONNX Runtime optimizing": lambda: default("fp16"),
        "default, channels equalized": lambda: typed(equal(0.5)),
        "default, 24 pictures searched": lambda: typed(searched=24),
        "default, 10 % of the arithmetic higher": lambda: typed(spared=0.1),
        "default, calibrated on white noise": lambda: typed(crops=noise),
    }
    print("| |", " | ".join(GROUPS), "| worst | multiply-adds in int8 | CPU s |")
    print("|---" * (len(GROUPS) + 4) + "|")
    for name, make in rows.items():
        if chosen.only not in name:
            continue
        begun = time.process_time()
        result = make()
        spent = time.process_time() - begun
        runnable = result if "optimizing" in name else round_explicitly(result)
        found = errors(run(runnable, unseen, as_written="optimizing" not in name), exact)
        cells = [f"{100 * value:.1f}" for value in (*found, max(found))]
        print(f"| {name} |", " | ".join(cells), f"| {int8_share(network, result):.1%} | {spent:.0f} |", flush=True)


def read(source: Path, model: Path) -> np.ndarray:
    """(N, height, width, 3) uint8 RGB."""
    if source.suffix == ".npz":
        return np.ascontiguousarray(np.load(source)["p"].transpose(0, 2, 3, 1))
    return collect_faces(source, read_info(model).template).crops


def run(network: Any, crops: np.ndarray, *, as_written: bool = True) -> np.ndarray:
    """(N, 257) float32; `as_written` keeps ONNX Runtime from moving and merging Q/DQ pairs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVEL.ORT_DISABLE_ALL if as_written else LEVEL.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: batch})[0] for batch in _batches(crops)])


def without(quantized: Any, *, weights: bool) -> Any:
    """Take the Q/DQ pairs off the weights, or off the activations."""
    bare = onnx.ModelProto()
    bare.CopyFrom(quantized)
    stored = {tensor.name for tensor in bare.graph.initializer}
    codes = {node.output[0]: node.input[0] for node in bare.graph.node if node.op_type == "QuantizeLinear"}
    codes = {code: name for code, name in codes.items() if (name in stored) == weights}
    exact = {node.output[0]: codes[node.input[0]] for node in bare.graph.node if node.input and node.input[0] in codes}
    for node in bare.graph.node:
        node.input[:] = [exact.get(name, name) for name in node.input]
    return bare


def _batches(crops: np.ndarray, size: int = 8) -> Iterator[np.ndarray]:
    for start in range(0, len(crops), size):
        yield to_input(crops[start : start + size], "float32")


def errors(changed: np.ndarray, exact: np.ndarray) -> list[float]:
    """Norm of the error over norm of the variation between pictures, per group."""
    spread = exact - exact.mean(0)
    return [
        float(np.linalg.norm((changed - exact)[:, part]) / np.linalg.norm(spread[:, part])) for part in GROUPS.values()
    ]


if __name__ == "__main__":
    main()
