"""`face3d-trt compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from face3d_trt.cli.export import Input, Outputs  # noqa: TC001  # typer reads them at run time

if TYPE_CHECKING:
    from face3d_trt.parity.compare import CompareOptions
    from face3d_trt.parity.saving import SaveOptions

_SAVING = "With --save-reference and no plan:"
_LIMIT = 32


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
    limit: Annotated[
        int, typer.Option(min=1, help="The most pictures to take of a folder, the first by name.")
    ] = _LIMIT,
    json: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write everything that was measured to this file."),
    ] = None,
    reference: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.npz", help="What --save-reference wrote: no torch, model or photos are needed."),
    ] = None,
    save_reference: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.npz", help="Compare nothing; write PyTorch's outputs for machines without torch."),
    ] = None,
    outputs: Annotated[
        Optional[Outputs],  # noqa: UP045
        typer.Option(help=f"{_SAVING} what the graph computes; default coeffs."),
    ] = None,
    input: Annotated[
        Optional[Input],  # noqa: UP045
        typer.Option(help=f"{_SAVING} what the graph takes; default float32."),
    ] = None,
    size: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="HxW", help="With --save-reference: an image size beside those of the plans; repeatable."),
    ] = None,
) -> None:
    """Prove that plans and their graphs agree with float32 PyTorch; exit 1 where they do not."""
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.parity.batches import parse_image_size
    from face3d_trt.parity.compare import CompareOptions, find_plans
    from face3d_trt.parity.saving import SaveOptions

    report = RichReporter()
    if save_reference is not None:
        _alone("--save-reference", "it compares nothing", json=json, limits=limits, reference=reference)
        plans = plan or (find_plans(report=report) if model is None else ())
        sizes = tuple(parse_image_size(text) for text in size or ())
        asked: tuple[Any, Any] = (outputs and outputs.value, input and input.value)
        _save(SaveOptions(save_reference, tuple(plans), images, model, limit, *asked, sizes), report)
        return
    _alone("compare", "it is for --save-reference", outputs=outputs, input=input, size=size or None)
    if reference is not None:
        _alone("--reference", "the pictures and the model's outputs are in the file", limit=_other(limit))
    plans = plan or find_plans(report=report)
    _compare([CompareOptions(path, images, model, limits, limit, reference) for path in plans], json, report)


def _other(limit: int) -> int | None:
    return None if limit == _LIMIT else limit


def _alone(what: str, reason: str, **options: object) -> None:
    """Refuse options that would be left aside."""
    from face3d_trt.errors import UsageError

    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name} means nothing with {what}: {reason}", allowed=f"{what} without --{name}")


def _save(options: SaveOptions, report: Any) -> None:
    from face3d_trt.engine.sizes import format_size
    from face3d_trt.parity.reference_file import size_name
    from face3d_trt.parity.saving import save_reference

    record = save_reference(options, report)
    written = format_size(options.file.stat().st_size)
    typer.echo(
        f"{options.file}: {len(record.names)} pictures at {', '.join(map(size_name, record.sizes))}, "
        f"outputs: {record.model.outputs}, input: {record.model.input}, {written}"
    )
    for note in record.notes:
        typer.echo(f"note: {note}")


def _compare(every: list[CompareOptions], json: Path | None, report: Any) -> None:
    from face3d_trt.cli.console import results
    from face3d_trt.files import check_output, write_text
    from face3d_trt.parity.compare import compare_each
    from face3d_trt.parity.table import show, summary
    from face3d_trt.parity.verdict import to_json

    if json is not None:
        check_output(json)
    console = results()
    verdicts = []
    for verdict in compare_each(every, report):
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
