"""`face3d-trt standin`."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

UNITS = {"s": 1, "m": 60, "h": 3600}


class Size(str, Enum):
    """How large."""

    small = "small"
    full = "full"


def duration(text: str) -> float:
    """Seconds of `90s`, `10m`, `1.5h`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time; write for example 90s, 10m or 1.5h")
    return float(match[1]) * UNITS[match[2]]


def command(
    directory: Annotated[Path, typer.Argument(help="The model directory to write.")],
    size: Annotated[
        Size,
        typer.Option(help="small: a quarter of the width. full: upstream's exact sizes, 520 MB, for speed and memory."),
    ] = Size.small,
    seeded: Annotated[bool, typer.Option("--seeded", help="Random weights, which have learned nothing.")] = False,
    train: Annotated[
        float | None,
        typer.Option(
            parser=duration, metavar="TIME", help="Teach the network now, so long (90s, 10m, 1h); wants a GPU."
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Pictures of a training step; 512 on a GPU, 16 on a CPU.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of --seeded and --train.", min=0)] = 0,
) -> None:
    """Write a model directory of upstream's layout that holds nobody's data, to try everything with.

    The small one has learned to read renders of its own morphable model. With random weights (--seeded, and the full
    size unless it is taught) FP16 can be judged, INT8 accuracy cannot.
    """
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.optional import require

    for package in ("torch", "scipy"):
        require(package, "export", "standin")
    from face3d_trt.model.standin import StandinOptions, write_standin

    options = StandinOptions(size=size.value, seeded=seeded, train_seconds=train, batch=batch, seed=seed)
    write_standin(directory, options, RichReporter())
    typer.echo(f"{directory}: stand-in, size {size.value}, weights: {options.weights}")
