"""`face3d-trt ui`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from face3d_trt.cli.serve import size


def command(
    plan: Annotated[
        Optional[Path],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Argument(help="A plan or an ONNX file. Default: the one in engines/, fp16 first. Nothing is built."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: one that is free.", min=0, max=65535)] = 7860,
    max_size: Annotated[int, typer.Option(parser=size, metavar="SIZE", help="Of a photo's file.")] = "32MiB",  # type: ignore[assignment]
    max_pixels: Annotated[int, typer.Option(help="Of a photo.")] = 50_000_000,
) -> None:
    """Open a page to try a plan: a photo in; the mesh in 3D, its texture, the coefficients, the time of each stage.

    Runs the engine in this process, on a GPU where there is one. Ends with Ctrl-C.
    """
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.ui.options import UiOptions
    from face3d_trt.ui.server import open_ui

    open_ui(UiOptions(plan, host, port, max_size, max_pixels), RichReporter())
