"""`face3d-trt standin`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Size(str, Enum):
    """How large."""

    small = "small"
    full = "full"


def command(
    directory: Annotated[Path, typer.Argument(help="The model directory to write.")],
    size: Annotated[
        Size,
        typer.Option(help="small: a quarter of the width. full: upstream's exact sizes, 520 MB, for speed and memory."),
    ] = Size.small,
    seed: Annotated[int, typer.Option(help="Of the random weights.", min=0)] = 0,
) -> None:
    """Write a model directory of upstream's layout that holds nobody's data, to try everything with.

    Its weights are random (seeded): FP16 can be judged with it, INT8 accuracy cannot.
    """
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.optional import require

    for package in ("torch", "scipy"):
        require(package, "export", "standin")
    from face3d_trt.model.standin import write_standin

    write_standin(directory, size.value, seed, RichReporter())
    typer.echo(f"{directory}: stand-in, size {size.value}, weights: seeded")
