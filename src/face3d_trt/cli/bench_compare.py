"""`face3d-trt bench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="What `bench --json` wrote before.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="What it wrote now.")],
    limit: Annotated[
        str, typer.Option(metavar="PERCENT", help="The share by which a ratio may get worse before this fails.")
    ] = "5%",
) -> None:
    """Fail where a ratio got worse: each row against a baseline of its own file, so another load cancels."""
    from face3d_trt.bench.page.guard import show
    from face3d_trt.bench.page.words import parse_share
    from face3d_trt.bench.records import read_run
    from face3d_trt.bench.regress import compare_runs
    from face3d_trt.cli.console import results

    found = compare_runs(read_run(old), read_run(new), parse_share(limit))
    show(found, results())
    if not found.passed:
        raise typer.Exit(1)
