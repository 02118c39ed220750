"""The command line: one module per verb, each parses arguments, calls one function and prints.

Exit codes: 0 done, 1 a gate failed, 2 wrong usage, 3 something is missing on this machine, 130 interrupted.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import typer

from face3d_trt.cli import (
    bench,
    bench_compare,
    bench_report,
    bisect,
    build,
    calib,
    compare,
    doctor,
    export,
    inspect,
    monitor,
    reconstruct,
    serve,
    standin,
    triton,
    ui,
)

app = typer.Typer(
    name="face3d-trt",
    help="3D face reconstruction as TensorRT engines: export, build, prove.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class _Interrupted(Exception):  # noqa: N818  it is no error
    """Ctrl-C, carried past Typer, which would end the process on KeyboardInterrupt without a word."""


def _guarded(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except KeyboardInterrupt as interrupt:
            raise _Interrupted from interrupt

    return run


def _add(name: str, function: Callable[..., None]) -> None:
    app.command(name)(_guarded(function))


def _add_group(name: str, function: Callable[..., None], **commands: Callable[..., None]) -> None:
    """A command that has others below it."""
    group = typer.Typer(invoke_without_command=True, pretty_exceptions_enable=False)
    group.callback()(_guarded(function))
    for each, run in commands.items():
        group.command(each)(_guarded(run))
    app.add_typer(group, name=name)


_add("standin", standin.command)
_add("export", export.command)
_add("calib", calib.command)
_add("build", build.command)
_add("compare", compare.command)
_add("bisect", bisect.command)
_add("reconstruct", reconstruct.command)
_add("serve", serve.command)
_add("triton", triton.command)
_add("ui", ui.command)
_add_group("bench", bench.command, report=bench_report.command, compare=bench_compare.command)
_add("inspect", inspect.command)
_add("monitor", monitor.command)
_add("doctor", doctor.command)


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
    except BrokenPipeError:  # whoever read our output has gone, as in `| head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (_Interrupted, KeyboardInterrupt):
        from face3d_trt.cli.console import show_error

        show_error("interrupted; no half-written file was left")
        if any(thread.daemon for thread in threading.enumerate()):
            sys.stdout.flush()
            os._exit(130)  # native work that cannot be stopped would bring the closing interpreter down
        sys.exit(130)
