"""`face3d-trt compare`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from face3d_trt.cli.export import Input, Outputs  # noqa: TC001  # typer reads them at run time
from face3d_trt.cli.judged import Images, Limit, Limits, Model  # noqa: TC001

if TYPE_CHECKING:
    from face3d_trt.parity.compare import CompareOptions
    from face3d_trt.parity.page.write import PageOptions
    from face3d_trt.parity.saving import SaveOptions

_SAVING = "With --save-reference and no plan:"
_LIMIT = 32


def command(
    plan: Annotated[
        Optional[list[Path]],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Option(help="A plan; repeatable. Without it: every plan in engines/ that has a manifest."),
    ] = None,
    images: Images = None,
    model: Model = None,
    limits: Limits = None,
    limit: Limit = _LIMIT,
    json: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write everything that was measured to this file."),
    ] = None,
    junit: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write each check and each row as a test case to this JUnit XML file."),
    ] = None,
    report: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.html", help="Write a page about it: verdict, figures, the worst faces as pictures."),
    ] = None,
    sensitivity: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="With --report: what `bisect` found. Default: its file beside the plan, if it is there."),
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
    bases: Annotated[
        bool,
        typer.Option(
            "--bases/--no-bases",
            help="With --save-reference: put the morphable model, with its licence, into the file; mm and px need it.",
        ),
    ] = True,
) -> None:
    """Prove that plans and their graphs agree with float32 PyTorch; exit 1 where they do not."""
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.parity.batches import parse_image_size
    from face3d_trt.parity.compare import CompareOptions, find_plans
    from face3d_trt.parity.page.write import PageOptions
    from face3d_trt.parity.saving import SaveOptions

    reporter = RichReporter()
    if save_reference is not None:
        written = {"json": json, "junit": junit, "report": report, "sensitivity": sensitivity}
        _alone("--save-reference", "it compares nothing", **written, limits=limits, reference=reference)
        plans = plan or (find_plans(report=reporter) if model is None else ())
        sizes = tuple(parse_image_size(text) for text in size or ())
        asked: tuple[Any, Any] = (outputs and outputs.value, input and input.value)
        _save(SaveOptions(save_reference, tuple(plans), images, model, limit, *asked, sizes, bases), reporter)
        return
    _alone(
        "compare",
        "it is for --save-reference",
        outputs=outputs,
        input=input,
        size=size or None,
        no_bases=None if bases else True,
    )
    if reference is not None:
        _alone("--reference", "the pictures and the model's outputs are in the file", limit=_other(limit))
    if report is None:
        _alone("compare", "it is for --report", sensitivity=sensitivity)
    plans = plan or find_plans(report=reporter)
    page = PageOptions(report, sensitivity, shlex.join(["face3d-trt", *sys.argv[1:]])) if report is not None else None
    every = [CompareOptions(path, images, model, limits, limit, reference) for path in plans]
    _compare(every, json, junit, page, reporter)


def _other(limit: int) -> int | None:
    return None if limit == _LIMIT else limit


def _alone(what: str, reason: str, **options: object) -> None:
    """Refuse options that would be left aside."""
    from face3d_trt.errors import UsageError

    for name, value in options.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} means nothing with {what}: {reason}", allowed=f"{what} without {option}")


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


def _compare(
    every: list[CompareOptions], json: Path | None, junit: Path | None, page: PageOptions | None, reporter: Any
) -> None:
    from face3d_trt.cli.console import results
    from face3d_trt.files import check_output, write_text
    from face3d_trt.parity.compare import comparisons
    from face3d_trt.parity.junit import to_junit
    from face3d_trt.parity.page.write import check_page, write_page
    from face3d_trt.parity.table import show, summary
    from face3d_trt.parity.verdict import to_json

    for path in (json, junit):
        if path is not None:
            check_output(path)
    if page is not None:
        check_page(page)
    console = results()
    found = []
    for comparison in comparisons(every, reporter):
        found.append(comparison)
        show(comparison.verdict, console)
    verdicts = [comparison.verdict for comparison in found]
    if len(verdicts) > 1:
        console.print()
        for verdict in verdicts:
            console.print(summary(verdict), markup=False, highlight=False, soft_wrap=True)
    if json is not None:
        write_text(json, to_json(verdicts))
    if junit is not None:
        write_text(junit, to_junit(verdicts))
    if page is not None:
        reporter.stage(f"report     {page.file}")
        write_page(page, found)
        typer.echo(f"report: {page.file}")
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)
