"""`face3d-trt doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from face3d_trt.doctor.diagnosis import Diagnosis

EXIT_MISSING = 3


def command(
    as_json: bool = typer.Option(False, "--json", help="Print the facts and verdicts as JSON."),
) -> None:
    """Say what this machine can do and what is missing, with the command that installs it.

    Exit 0 when export, build and compare can run here, 3 otherwise. Imports no framework.
    """
    from pathlib import Path

    from face3d_trt.doctor.diagnosis import diagnose
    from face3d_trt.doctor.machine import look

    diagnosis = diagnose(look(Path()))
    if as_json:
        from face3d_trt.doctor.show import as_json as to_json

        typer.echo(to_json(diagnosis))
    else:
        _print(diagnosis)
    if not diagnosis.healthy:
        raise typer.Exit(EXIT_MISSING)


def _print(diagnosis: Diagnosis) -> None:
    from face3d_trt.cli.console import results
    from face3d_trt.doctor.show import print_diagnosis

    print_diagnosis(diagnosis, results())
