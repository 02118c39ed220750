"""The command line: one module per verb, each parses arguments, calls one function and prints.

Exit codes: 0 done, 1 a gate failed, 2 wrong usage, 3 something is missing on this machine, 130 interrupted.
"""

from __future__ import annotations

import sys

import typer

from face3d_trt.cli import build, calib, compare, doctor, export, standin

app = typer.Typer(
    name="face3d-trt",
    help="3D face reconstruction as TensorRT engines: export, build, prove.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("standin")(standin.command)
app.command("export")(export.command)
app.command("calib")(calib.command)
app.command("build")(build.command)
app.command("compare")(compare.command)
app.command("doctor")(doctor.command)


def _version(value: bool) -> None:
    if value:
        from face3d_trt import __version__

        typer.echo(f"face3d-trt {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """3D face reconstruction as TensorRT engines: export, build, prove."""


def main() -> None:
    """Run the command line; errors become one message and an exit code."""
    from face3d_trt.errors import Face3DError

    try:
        app()
    except Face3DError as error:
        from face3d_trt.cli.console import show_error

        show_error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        from face3d_trt.cli.console import show_error

        show_error("interrupted; no half-written file was left")
        sys.exit(130)
