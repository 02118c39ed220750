"""`face3d-trt export`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from face3d_trt.names import DEFAULT_ONNX


class Outputs(str, Enum):
    """What the graph computes."""

    coeffs = "coeffs"
    mesh = "mesh"


class Input(str, Enum):
    """What the graph takes."""

    float32 = "float32"
    uint8 = "uint8"


def command(
    model: Annotated[
        str,
        typer.Option(
            help="Model directory, or ModelScope id (owner/name, owner/name@revision).", envvar="FACE3D_MODEL"
        ),
    ] = "damo/cv_resnet50_face-reconstruction",
    outputs: Annotated[
        Outputs,
        typer.Option(help="coeffs: 257 coefficients. mesh: vertex and texture too; embeds the morphable model."),
    ] = Outputs.coeffs,
    input: Annotated[
        Input, typer.Option(help="float32: (batch, 3, height, width), 0..1. uint8: (batch, height, width, 3).")
    ] = Input.float32,
    output: Annotated[Path, typer.Option("--output", "-o", help="The ONNX file.")] = Path(DEFAULT_ONNX),
    face: Annotated[
        bool,
        typer.Option(
            help="Write the morphable model beside the ONNX file (NAME.face.npz), for reconstruct; has its licence."
        ),
    ] = True,
) -> None:
    """Model to ONNX, with dynamic batch, height and width; checked against PyTorch before it gets its name."""
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.graph.export import ExportOptions, export_onnx

    options = ExportOptions(model=model, outputs=outputs.value, input=input.value, output=output, face=face)
    info = export_onnx(options, RichReporter())
    size = output.stat().st_size / 1e6
    typer.echo(f"{output}: {size:.1f} MB, weights: {info.weights}, outputs: {info.outputs}, input: {info.input}")
