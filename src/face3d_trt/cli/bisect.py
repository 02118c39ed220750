"""`face3d-trt bisect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from face3d_trt.cli.judged import Images, Limit, Limits, Model  # noqa: TC001  # typer reads them at run time


def command(
    plan: Annotated[
        Optional[Path],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Option(help="A plan; its manifest names the typed graph and the float32 graph."),
    ] = None,
    typed: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="A typed graph in the place of a plan."),
    ] = None,
    onnx: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="The float32 graph of --typed. Default: NAME.onnx beside NAME.int8.onnx."),
    ] = None,
    images: Images = None,
    model: Model = None,
    limits: Limits = None,
    limit: Limit = 16,
    most: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="The most nodes that may be kept higher. Default: any number."),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="FILE", help="The list; default: the typed graph's name, .keep.json."),
    ] = None,
) -> None:
    """Rank a graph's int8 or fp16 nodes by what they cost, name damaged ones, and list the fewest to keep higher.

    The list is for `build --keep`. An interrupted run is taken up where it was.
    """
    from face3d_trt.bisect.files import BisectOptions, bisect_files
    from face3d_trt.bisect.show import show
    from face3d_trt.cli.console import RichReporter, results

    options = BisectOptions(plan, typed, onnx, images, model, limits, limit, most, output)
    record, written = bisect_files(options, RichReporter())
    show(record, written, results())
    if not record.passed:
        raise typer.Exit(1)
