"""`face3d-trt compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer


def command(
    plan: Annotated[
        Optional[list[Path]],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Option(help="A plan; repeatable. Without it: every plan in engines/ that has a manifest."),
    ] = None,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A photo, or a folder of photos or aligned crops. Default: the package's sample faces."),
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Directory or ModelScope id of the float32 reference. Default: the one that was exported."),
    ] = None,
    limits: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="JSON file with other limits than the package's."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most pictures to take of a folder, the first by name.")] = 32,
    json: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write everything that was measured to this file."),
    ] = None,
) -> None:
    """Prove that plans and their graphs agree with float32 PyTorch; exit 1 where they do not."""
    from face3d_trt.cli.console import RichReporter, results
    from face3d_trt.files import check_output, write_text
    from face3d_trt.parity.compare import CompareOptions, compare_each, find_plans
    from face3d_trt.parity.table import show, summary
    from face3d_trt.parity.verdict import to_json

    if json is not None:
        check_output(json)
    report, console = RichReporter(), results()
    verdicts = []
    plans = plan or find_plans(report=report)
    for verdict in compare_each([CompareOptions(path, images, model, limits, limit) for path in plans], report):
        verdicts.append(verdict)
        show(verdict, console)
    if len(verdicts) > 1:
        console.print()
        for verdict in verdicts:
            console.print(summary(verdict), markup=False, highlight=False, soft_wrap=True)
    if json is not None:
        write_text(json, to_json(verdicts))
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)
