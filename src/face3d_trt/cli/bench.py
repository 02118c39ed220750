"""`face3d-trt bench`; `bench report` and `bench compare` are commands below it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from face3d_trt.cli.export import Input, Outputs  # typer reads them at run time

if TYPE_CHECKING:
    from face3d_trt.bench.options import BenchOptions

_SECONDS, _COMPILE_LIMIT = 3.0, 120.0


def command(
    context: typer.Context,
    backend: Annotated[
        Optional[list[str]],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Option(help="A backend, or several with commas; repeatable. Default: what this machine can run."),
    ] = None,
    plan: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="A plan for `trt`; repeatable. Default: every plan in engines/ that has a manifest."),
    ] = None,
    onnx: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="The float32 graph of `export`, for ort-*. Default: engines/'s."),
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(envvar="FACE3D_MODEL", help="Directory or id, for torch-*. Default: what was exported."),
    ] = None,
    batches: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="N,N,...", help="Batch sizes. Default: 1,2,4,...,256; without a GPU 1,2,4,8."),
    ] = None,
    size: Annotated[str, typer.Option(metavar="N or HxW", help="Height and width of the pictures.")] = "224",
    outputs: Annotated[Outputs, typer.Option(help="What is computed.")] = Outputs.coeffs,
    input: Annotated[
        Optional[Input],  # noqa: UP045
        typer.Option(help="What goes in. Default: what the plans or the graph take, else float32."),
    ] = None,
    transfers: Annotated[
        bool, typer.Option("--transfers", help="On a GPU: measure numpy to numpy, copies counted, as well.")
    ] = False,
    transfers_at: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="N,N,...", help="The same at these batches alone: half the time of --transfers."),
    ] = None,
    device: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="N or cpu", help="GPU, or cpu. Default: the first GPU, if there is one."),
    ] = None,
    json: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write every row to this file as it comes; `bench report` reads it."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the rows that --json has and measure what it lacks.")
    ] = False,
    reference: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.npz", help="What `compare --save-reference` wrote: errors where no torch is."),
    ] = None,
    calib: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Aligned crops for ort-int8 on a CPU. Default: the package's samples."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="To measure a row, about.")] = _SECONDS,
    compile_limit: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="To compile one case (torch.compile).")
    ] = _COMPILE_LIMIT,
    budget: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="For the whole run, fairly shared by the backends; --resume takes up what is left.",
        ),
    ] = None,
    layers: Annotated[bool, typer.Option("--layers/--no-layers", help="Time the layers of plans.")] = True,
    ceilings: Annotated[
        bool, typer.Option("--ceilings/--no-ceilings", help="Measure the machine's ceilings, for the roofline.")
    ] = True,
) -> None:
    """Measure backends side by side: latency, throughput, memory, power, and the error beside each."""
    if context.invoked_subcommand is not None:
        return
    from face3d_trt.bench.measure import Pace
    from face3d_trt.bench.options import BenchOptions, parse_backends, parse_batches, parse_device, parse_size

    height, width = parse_size(size)
    _run(
        BenchOptions(
            backends=parse_backends(backend or ()),
            plans=tuple(plan or ()),
            onnx=onnx,
            model=model,
            batches=() if batches is None else parse_batches(batches),
            height=height,
            width=width,
            outputs=outputs.value,
            input=input.value if input is not None else None,
            transfers=transfers,
            transfers_at=() if transfers_at is None else parse_batches(transfers_at, "--transfers-at"),
            device=parse_device(device),
            json=json,
            resume=resume,
            pace=Pace(seconds),
            compile_limit_s=compile_limit,
            budget_s=budget,
            calib=calib,
            reference=reference,
            layers=layers,
            ceilings=ceilings,
            command=shlex.join(["face3d-trt", *sys.argv[1:]]),
        )
    )


def _run(options: BenchOptions) -> None:
    from face3d_trt.bench.run import check_any, run_bench
    from face3d_trt.bench.show import show
    from face3d_trt.cli.console import RichReporter, results

    file = run_bench(options, RichReporter())
    show(file, results(width=110))
    if options.json is not None:
        typer.echo(f"{options.json}: {len(file.rows)} rows")
    check_any(file)
