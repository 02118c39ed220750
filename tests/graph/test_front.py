"""The front for TensorRT 8.6 computes what the exported one computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.helpers import export_unchecked

from face3d_trt.graph.precision import PrecisionOptions, typed_graph


@pytest.fixture(scope="module")
def uint8_graph(standin, tmp_path_factory):
    return export_unchecked(standin, tmp_path_factory.mktemp("front") / "uint8.onnx", input="uint8")


@pytest.fixture(scope="module")
def typed(uint8_graph, root, tmp_path_factory):
    """fp16 and int8 graphs for TensorRT 8.6, by precision."""
    folder = tmp_path_factory.mktemp("typed")
    faces = folder / "faces"
    faces.mkdir()
    for picture in sorted((root / "calibration").glob("render_*.jpg"))[:4]:
        (faces / picture.name).write_bytes(picture.read_bytes())
    made = {}
    for precision in ("fp16", "int8"):
        made[precision] = folder / f"{precision}.onnx"
        options = PrecisionOptions(precision, faces, "max", strongly_typed=False, opset=17)
        typed_graph(uint8_graph, made[precision], options)
    return made


def run(path, pixels):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    return session.run(["coeffs"], {"input": pixels})[0]


@pytest.mark.parametrize("shape", [(1, 224, 224, 3), (3, 96, 160, 3)])
def test_fp16_graph_without_its_flags_is_the_exported_graph(uint8_graph, typed, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    np.testing.assert_allclose(run(typed["fp16"], pixels), run(uint8_graph, pixels), atol=1e-5)


def test_pixels_are_quantized_as_their_share_of_255_would_be(typed):
    """Every pixel value, by hand: round(x / 255 / scale), half to even."""
    graph = onnx.load(typed["int8"]).graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    quantize = next(node for node in graph.node if node.op_type == "QuantizeLinear" and "front" in node.input[1])
    dequantize = next(node for node in graph.node if node.input[:1] == [quantize.output[0]])
    values = np.arange(256, dtype=np.float32)
    codes = np.clip(np.rint(values / stored[quantize.input[1]]), -128, 127)
    shares = codes * stored[dequantize.input[1]]
    step = float(stored[dequantize.input[1]])
    assert np.abs(shares - np.minimum(values / 255, 127 * step)).max() <= step / 2 + 1e-6


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_nothing_transposes_three_channels_at_once(typed, precision):
    graph = onnx.load(typed[precision]).graph
    front = [node.op_type for node in graph.node if node.name.startswith("front/")]
    assert front.count("Gather") == front.count("Transpose") == 3
    assert ("Div" in front) == (precision == "fp16")


def test_the_order_of_the_channels_counts(typed):
    """A picture whose channels differ: were they mixed up, these answers would be the same."""
    pixels = np.zeros((1, 224, 224, 3), np.uint8)
    pixels[..., 0] = np.random.default_rng(1).integers(0, 256, (224, 224))
    assert np.abs(run(typed["int8"], pixels) - run(typed["int8"], pixels[..., ::-1])).max() > 0.01
