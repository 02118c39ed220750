"""`face3d-trt monitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from face3d_trt.cli.standin import duration

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from face3d_trt.monitor.state import State
    from face3d_trt.monitor.watch import WatchOptions


def devices(text: str) -> tuple[int, ...] | None:
    """(0, 2) of `0,2`; None of `all`."""
    if text.strip() == "all":
        return None
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise typer.BadParameter(f"{text!r} names no GPUs; write all, or numbers such as 0,1")
    return tuple(dict.fromkeys(int(number) for number in numbers))


def command(
    interval: Annotated[
        float, typer.Option(parser=duration, metavar="TIME", help="Between two looks: 1s, 0.5s, 1m.")
    ] = "1s",  # type: ignore[assignment]  # a default in the words of the command line
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line for each look.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Prometheus endpoint of a running process: its GPUs, queues and images. http://127.0.0.1:9400",
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Answer Prometheus here meanwhile, for this machine's GPUs.", min=0, max=65535)
    ] = None,
    address: Annotated[
        str, typer.Option(help="That --port listens on; 0.0.0.0 for every machine that reaches this one.")
    ] = "127.0.0.1",
    which: Annotated[str, typer.Option("--devices", metavar="all|0,1", help="GPUs, as CUDA counts them.")] = "all",
) -> None:
    """Show what the GPUs are doing, and the queues and images of a running process.

    Ends with Ctrl-C. Without a GPU, and without --url, exit 3.
    """
    from face3d_trt.monitor.watch import WatchOptions

    options = WatchOptions(url=url, devices=devices(which), interval_s=interval, port=port, address=address)
    try:
        _watch(options, once=once, as_json=as_json)
    except KeyboardInterrupt:
        return  # the usual end


def _watch(options: WatchOptions, *, once: bool, as_json: bool) -> None:
    import contextlib

    from face3d_trt.cli.console import RichReporter
    from face3d_trt.monitor.watch import opened, states

    with contextlib.ExitStack() as stack:
        source, endpoint = stack.enter_context(opened(options))
        if endpoint is not None:
            RichReporter().stage(f"metrics for Prometheus: {endpoint}")
        show = _print_json if as_json else _table(stack, once)
        before = None
        for state in states(source, options.interval_s):
            show(state, before)
            before = state
            if once:
                break


def _print_json(state: State, before: State | None) -> None:
    import json
    import sys

    print(json.dumps(state.as_json()))
    sys.stdout.flush()


def _table(stack: contextlib.ExitStack, once: bool) -> Callable[[State, State | None], None]:
    from rich.live import Live

    from face3d_trt.cli.console import results
    from face3d_trt.monitor.show import tables

    console = results()
    if once or not console.is_terminal:
        return lambda state, before: console.print(tables(state, before))
    live = stack.enter_context(Live(console=console, auto_refresh=False))
    return lambda state, before: live.update(tables(state, before), refresh=True)
