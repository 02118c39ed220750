"""What several test folders do in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from face3d_trt.graph.int8 import Method
    from face3d_trt.records import Precision


def export_unchecked(directory: Path, output: Path, input: Literal["float32", "uint8"] = "float32") -> Path:
    """What `export` writes, coefficients only, without its check by ONNX Runtime: tests of `export` have that."""
    import onnx

    from face3d_trt.graph.export import ExportOptions, to_onnx
    from face3d_trt.graph.info import write_info
    from face3d_trt.model.load import load_model
    from face3d_trt.model.reference import reference_module
    from face3d_trt.records import ModelInfo

    options = ExportOptions(model=str(directory), input=input, output=output)
    model = load_model(options.model, morphable=False)
    graph = to_onnx(reference_module(model, options.outputs, options.input), options)
    info = ModelInfo(
        source=model.source,
        revision=None,
        weights=model.weights,
        checkpoint_sha256=model.checkpoint_sha256,
        width=model.network.width,
        vertices=0,
        outputs=options.outputs,
        input=options.input,
        template=tuple(map(tuple, model.template.tolist())),
        version="test",
    )
    write_info(graph, info)
    output.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(graph, output)
    return output


def small_build(
    onnx: Path,
    precision: Precision,
    calibration: Path | None = None,
    output: Path | None = None,
    method: Method = "output",
) -> Path:
    """A plan for batches of up to 4 at 224 px."""
    from face3d_trt.engine.build import BuildOptions, build_engine
    from face3d_trt.engine.profile import Profile

    small = (Profile.parse("min=1x3x224x224,opt=3x3x224x224,max=4x3x224x224"),)
    options = BuildOptions(onnx, precision, calibration, method, small, output=output)
    build_engine(options)
    return options.plan
