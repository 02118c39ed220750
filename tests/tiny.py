"""A miniature of the exported graph, by hand: same names, same parts, a residual add, seconds instead of minutes.

Independent of the exporter: onnx.helper only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.records import ModelInfo

if TYPE_CHECKING:
    import onnx

VERTICES = 20
CONVOLUTIONS = 6  # stem, two in each of two residual blocks, head
OPSET = 18  # what the exporter writes


class Builder:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, value: np.ndarray) -> str:
        from onnx import numpy_helper

        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, name: str, inputs: list[str], output: str | None = None, **attributes: object) -> str:
        from onnx import helper

        output = output or f"{name}:0"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def conv(
        self, name: str, tensor: str, shape: tuple[int, int, int, int], stride: int = 1, scale: float = 1.0
    ) -> str:
        spread = scale * np.sqrt(2 / np.prod(shape[1:]))
        weight = self.weight(f"{name}.weight", self.rng.normal(0, spread, shape).astype(np.float32))
        bias = self.weight(f"{name}.bias", self.rng.normal(0, 0.1, shape[0]).astype(np.float32))
        pad = shape[2] // 2
        return self.node(
            "Conv", f"{name}/Conv", [tensor, weight, bias], pads=[pad] * 4, strides=[stride] * 2, kernel_shape=shape[2:]
        )

    def block(self, name: str, tensor: str, channels: int, scale: float) -> str:
        inner = self.conv(f"{name}.conv1", tensor, (channels, channels, 3, 3), scale=scale)
        inner = self.node("Relu", f"{name}.relu/Relu", [inner])
        inner = self.conv(f"{name}.conv2", inner, (channels, channels, 3, 3))
        total = self.node("Add", f"{name}/Add", [inner, tensor])
        return self.node("Relu", f"{name}.relu/Relu_2", [total])


def tiny_graph(outputs: str = "coeffs", layout: str = "float32", seed: int = 0, loud: float = 1.0) -> onnx.ModelProto:
    """An exported graph in small.

    Args:
        outputs: "coeffs" or "mesh".
        layout: "float32" or "uint8".
        seed: Of the weights.
        loud: Factor on one inner convolution, which makes its activations leave fp16's range.
    """
    import onnx
    from onnx import TensorProto, helper

    b = Builder(seed)
    image = "input"
    if layout == "uint8":
        cast = b.node("Cast", "front/Cast", ["input"], to=TensorProto.FLOAT)
        turned = b.node("Transpose", "front/Transpose", [cast], perm=[0, 3, 1, 2])
        image = b.node("Div", "front/Div", [turned, b.weight("front.scale", np.float32(255))], "image")
    x = b.conv("backbone.conv1", image, (16, 3, 7, 7), stride=4)
    x = b.node("Relu", "backbone.relu/Relu", [x])
    x = b.node("MaxPool", "backbone.maxpool/MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = b.block("backbone.layer1.0", x, 16, loud)
    x = b.block("backbone.layer1.1", x, 16, 1.0)
    axes = b.weight("axes", np.array([-1, -2], np.int64))
    x = b.node("ReduceMean", "backbone.avgpool/ReduceMean", [x, axes], keepdims=1, noop_with_empty_axes=0)
    x = b.conv("final_layers.0", x, (257, 16, 1, 1))
    one = b.weight("one", np.array([1], np.int64))
    flat = b.weight("flat", np.array([-1, 257], np.int64))
    b.node("Reshape", "Reshape", [x, flat], "coeffs")
    if outputs == "mesh":
        _decode(b, one)
    sizes = ["batch", 3, "height", "width"] if layout == "float32" else ["batch", "height", "width", 3]
    kind = TensorProto.FLOAT if layout == "float32" else TensorProto.UINT8
    values = [helper.make_tensor_value_info("coeffs", TensorProto.FLOAT, ["batch", 257])]
    if outputs == "mesh":
        shape = ["batch", VERTICES, 3]
        values += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("vertex", "texture")]
    graph = helper.make_graph(
        b.nodes, "tiny", [helper.make_tensor_value_info("input", kind, sizes)], values, initializer=b.weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    model.metadata_props.add(key="face3d", value=_info(outputs, layout).model_dump_json())
    onnx.checker.check_model(model, full_check=True)
    return model


def _decode(b: Builder, one: str) -> None:
    shape = b.weight("decode.shape", np.array([-1, VERTICES, 3], np.int64))
    for name, start, stop in (("vertex", 0, 144), ("texture", 144, 224)):
        low, high = (b.weight(f"{name}.{at}", np.array([at], np.int64)) for at in (start, stop))
        part = b.node("Slice", f"decode/Slice_{name}", ["coeffs", low, high, one, one])
        basis = b.rng.normal(0, 0.1, (stop - start, VERTICES * 3)).astype(np.float32)
        moved = b.node("MatMul", f"decode/MatMul_{name}", [part, b.weight(f"decode.{name}_basis", basis)])
        b.node("Reshape", f"decode/Reshape_{name}", [moved, shape], name)


def _info(outputs: str, layout: str) -> ModelInfo:
    points = ((-0.3, 0.3, 0.2), (0.3, 0.3, 0.2), (0.0, 0.0, 0.7), (-0.25, -0.4, 0.2), (0.25, -0.4, 0.2))
    return ModelInfo.model_validate(
        {
            "source": "tiny",
            "revision": None,
            "weights": "seeded",
            "checkpoint_sha256": "0" * 64,
            "width": 16,
            "vertices": VERTICES if outputs == "mesh" else 0,
            "outputs": outputs,
            "input": layout,
            "template": points,
            "version": "0.1.0",
        }
    )


def write_tiny(path: Path, **options: object) -> Path:
    """`tiny_graph` as a file."""
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(tiny_graph(**options), path)  # type: ignore[arg-type]
    return path


def crops(count: int, seed: int = 0) -> np.ndarray:
    """(count, 224, 224, 3) uint8 pictures: smooth random blobs, each with the full range from 0 to 255."""
    coarse = np.random.default_rng(seed).random((count, 8, 8, 3))
    fine = coarse.repeat(28, axis=1).repeat(28, axis=2)
    low, high = (f(fine, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    return np.rint((fine - low) / (high - low) * 255).astype(np.uint8)


def write_crops(folder: Path, count: int, seed: int = 0) -> Path:
    """`crops` as PNG files."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for index, crop in enumerate(crops(count, seed)):
        Image.fromarray(crop).save(folder / f"{index:03}.png")
    return folder


def run(model: onnx.ModelProto | Path, pictures: np.ndarray) -> list[np.ndarray]:
    """Outputs of ONNX Runtime for (N, 224, 224, 3) uint8 pictures, in the layout that the graph takes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it cannot fold fp16 scales, and says so for each
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    if session.get_inputs()[0].type == "tensor(float)":
        pictures = (pictures.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)
    return session.run(None, {session.get_inputs()[0].name: pictures})


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []
        self.steps: list[tuple[str, int, int]] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def track(self, items, text, total=None):  # type: ignore[no-untyped-def]
        yield from items

    def progress(self, text: str, done: int, total: int) -> None:
        self.steps.append((text, done, total))
