"""`face3d-trt calib`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from face3d_trt.names import DEFAULT_ONNX


def command(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A photo, or a folder of photos with its subfolders.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The folder to write: 224x224 PNGs and skipped.csv.")],
    detector: Annotated[
        str | None, typer.Option(help="mtcnn | landmarks | aligned; without it: landmarks if given a file, else mtcnn.")
    ] = None,
    landmarks: Annotated[
        Path | None, typer.Option(help="JSON or CSV of five points per picture.", show_default=False)
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(help=f"The exported graph whose template to use; {DEFAULT_ONNX}.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Instead of --onnx: a model directory or ModelScope id.")] = None,
    limit: Annotated[int | None, typer.Option(help="Stop after so many faces.")] = None,
) -> None:
    """Make a calibration set: one aligned face per photo, and a list of what was left out and why."""
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.faces.aligned_set import SKIPPED_FILE, SetOptions, make_set
    from face3d_trt.faces.detect import detector as find_detector
    from face3d_trt.faces.template import find_template

    report = RichReporter()
    chosen = find_detector(detector, landmarks)
    template = None if detector == "aligned" else find_template(onnx, model)
    written, skipped = make_set(SetOptions(source, target, template, chosen, limit), report)
    for each in skipped:
        report.warn(f"left out {each.name}: {each.reason}")
    where = f" (see {target / SKIPPED_FILE})" if skipped else ""
    typer.echo(f"{written} faces written to {target}, {len(skipped)} left out{where}")
