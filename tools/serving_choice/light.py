"""An ONNX file that costs an engine next to nothing, so that only the server around it is left to be measured.

python tools/serving_choice/light.py build/light.onnx

Every 16th pixel of a crop times fixed numbers: (batch, height, width, 3) uint8 to (batch, 257) float32.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from face3d_trt.names import COEFFICIENTS, COEFFS, CROP, INPUT
from face3d_trt.records import ModelInfo

STEP = 16
TEMPLATE = ((-0.3, 0.3, 0.0), (0.3, 0.3, 0.0), (0.0, 0.0, 0.4), (-0.2, -0.3, 0.1), (0.2, -0.3, 0.1))


def write(path: Path) -> None:
    """Write the graph with the facts that every graph of this tool has."""
    pixels = (CROP // STEP) ** 2 * 3
    weights = np.random.default_rng(0).normal(0, 1e-3, (pixels, COEFFICIENTS)).astype(np.float32)
    constants = {
        "starts": np.array([0, 0], np.int64),
        "ends": np.array([CROP, CROP], np.int64),
        "axes": np.array([1, 2], np.int64),
        "steps": np.array([STEP, STEP], np.int64),
        "flat": np.array([-1, pixels], np.int64),
        "weights": weights,
    }
    nodes = [
        helper.make_node("Slice", [INPUT, "starts", "ends", "axes", "steps"], ["thin"]),
        helper.make_node("Cast", ["thin"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["floats", "flat"], ["rows"]),
        helper.make_node("MatMul", ["rows", "weights"], [COEFFS]),
    ]
    graph = helper.make_graph(
        nodes,
        "light",
        [helper.make_tensor_value_info(INPUT, TensorProto.UINT8, ["batch", "height", "width", 3])],
        [helper.make_tensor_value_info(COEFFS, TensorProto.FLOAT, ["batch", COEFFICIENTS])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    facts = ModelInfo(
        source="light",
        revision=None,
        weights="seeded",
        checkpoint_sha256="0" * 64,
        width=1,
        vertices=4,
        outputs="coeffs",
        input="uint8",
        template=TEMPLATE,
        version="light",
    )
    helper.set_model_props(model, {"face3d": facts.model_dump_json()})
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    write(parser.parse_args().path)
