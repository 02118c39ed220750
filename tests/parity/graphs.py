"""A tiny image → 257 coefficients network, written twice by hand: in torch, and as ONNX of any precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

SIDE = 32  # of the crops in these tests
CHANNELS = 16


def weights(seed: int = 0) -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return {
        "conv1.weight": rng.normal(0, 0.3, (CHANNELS, 3, 3, 3)).astype(np.float32),
        "conv2.weight": rng.normal(0, 0.2, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32),
        "head.weight": rng.normal(0, 1, (257, CHANNELS, 1, 1)).astype(np.float32),
        "head.bias": rng.normal(0, 0.1, 257).astype(np.float32),
    }


class Tiny(nn.Module):
    def __init__(self, values: dict[str, npt.NDArray[np.float32]]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, CHANNELS, 3, 4, bias=False)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, 2, bias=False)
        self.head = nn.Conv2d(CHANNELS, 257, 1)
        self.load_state_dict({key: torch.from_numpy(value) for key, value in values.items()})

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor]:
        features = torch.relu(self.conv2(torch.relu(self.conv1(image)))).mean((2, 3), keepdim=True)
        return (self.head(features).flatten(1),)


def tiny_onnx(
    values: dict[str, npt.NDArray[np.float32]],
    half: bool = False,
    before: tuple[onnx.NodeProto, ...] = (),
    after: tuple[onnx.NodeProto, ...] = (),
    extra: dict[str, npt.NDArray] | None = None,
    batch: str | int = "batch",
    output: str = "coeffs",
) -> onnx.ModelProto:
    """The same network; `before` maps `input` to `image`, `after` maps `raw` to the output."""
    node = helper.make_node
    nodes = list(before) or [node("Identity", ["input"], ["image"])]
    if half:
        nodes.append(node("Cast", ["image"], ["half_image"], to=TensorProto.FLOAT16))
    nodes += [
        node("Conv", ["half_image" if half else "image", "conv1.weight"], ["c1"], name="conv1/Conv", strides=[4, 4]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "conv2.weight"], ["c2"], name="conv2/Conv", strides=[2, 2]),
        node("Relu", ["c2"], ["r2"]),
        node("GlobalAveragePool", ["r2"], ["pool"]),
        node("Conv", ["pool", "head.weight", "head.bias"], ["c3"], name="head/Conv"),
        node("Flatten", ["c3"], ["flat"]),
        node("Cast", ["flat"], ["raw"], to=TensorProto.FLOAT) if half else node("Identity", ["flat"], ["raw"]),
        *(after or (node("Identity", ["raw"], [output]),)),
    ]
    kind = np.float16 if half else np.float32
    constants = {key: value.astype(kind) for key, value in values.items()} | (extra or {})
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, 3, "height", "width"])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [batch, 257])],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def flipped(values: dict[str, npt.NDArray[np.float32]], key: str) -> dict[str, npt.NDArray[np.float32]]:
    return values | {key: -values[key]}


def rows_from_one_on(error: float) -> tuple[onnx.NodeProto, ...]:
    """Nodes that add `error` to every row but the first: right at batch 1, wrong at batch N."""
    node = helper.make_node
    return (
        node("Shape", ["raw"], ["rows"], start=0, end=1),
        node("Squeeze", ["rows"], ["count"]),
        node("Range", ["zero", "count", "one"], ["index"]),
        node("Greater", ["index", "zero"], ["later"]),
        node("Cast", ["later"], ["mask"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "axis"], ["column"]),
        node("Mul", ["column", "error"], ["shift"]),
        node("Add", ["raw", "shift"], ["coeffs"]),
    )


def rows_constants(error: float) -> dict[str, npt.NDArray]:
    return {
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "axis": np.array([1], np.int64),
        "error": np.array(error, np.float32),
    }


def crops(count: int, seed: int = 1) -> npt.NDArray[np.uint8]:
    """Coloured blobs, all different."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return coarse.repeat(SIDE // 4, axis=1).repeat(SIDE // 4, axis=2)


Maker = Callable[[], onnx.ModelProto]
