"""`face3d-trt bench report`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN.json...", help="What `bench --json` wrote.")],
    output: Annotated[
        Optional[Path],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Option("--output", "-o", metavar="FILE", help="The report: NAME.html or NAME.md."),
    ] = None,
    latency_limit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="TIME", help="Recommend a batch: 99 of 100 calls are to take no longer. Example: 5ms."),
    ] = None,
    plots: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Write the plots as SVG files too."),
    ] = None,
    doc: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE.md",
            help="Put the tables between the marks of this document, and the plots beside it or in --plots.",
        ),
    ] = None,
    any_weights: Annotated[
        bool,
        typer.Option(
            "--any-weights",
            help="Put runs of one network with other weights together: speed does not depend on them. Errors shown are "
            "those of the newest weights.",
        ),
    ] = False,
) -> None:
    """Merge runs, also of several interpreters and machines, into tables and plots.

    Runs of the same rows on one machine become medians, and the report says how far they agree.
    """
    from face3d_trt.bench.page.words import parse_milliseconds, shown_command
    from face3d_trt.bench.page.write import ReportOptions, write_report
    from face3d_trt.bench.records import read_run

    limit_ms = None if latency_limit is None else parse_milliseconds(latency_limit)
    shown = shown_command(shlex.join(["face3d-trt", *sys.argv[1:]]))
    options = ReportOptions(output, doc, plots, limit_ms, shown, any_weights)
    sections, written = write_report(options, [read_run(path) for path in runs])
    for section in sections:
        typer.echo(section.title)
        for sentence in (*section.sentences, section.noise):
            typer.echo(f"  {sentence}")
    for path in written:
        typer.echo(f"report: {path}")
