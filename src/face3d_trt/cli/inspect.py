"""`face3d-trt inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan of `build`, its manifest beside it.")],
    layers: Annotated[bool, typer.Option("--layers", help="List every layer, in the engine's order.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what a plan is, what its layers compute in, and whether it runs on this machine.

    Needs neither a GPU nor TensorRT. Exit 0 when the plan is what build wrote, even where it cannot run; else 2.
    """
    from face3d_trt.engine.inspect import inspect_plan

    inspection = inspect_plan(plan)
    if as_json:
        import json

        typer.echo(json.dumps(inspection.facts(), indent=2))
    else:
        from face3d_trt.cli.console import results
        from face3d_trt.engine.show import print_inspection

        print_inspection(inspection, results(), every_layer=layers)
    if inspection.trouble is not None:
        raise inspection.trouble
