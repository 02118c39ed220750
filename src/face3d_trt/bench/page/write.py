"""Write a report: one HTML file without scripts that loads nothing, or Markdown, with or without plots as files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt import __version__
from face3d_trt.bench.page.content import sections
from face3d_trt.bench.page.markdown import markdown, put_into
from face3d_trt.errors import UsageError
from face3d_trt.files import check_output, write_together
from face3d_trt.optional import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.bench.page.content import Section
    from face3d_trt.bench.records import BenchFile

_SUFFIXES = (".html", ".md")
_NEEDS = (("jinja2", "fills in its template"), ("matplotlib", "draws its plots"))
_DOC_PREFIX = "benchmarks-"


@dataclass(frozen=True)
class ReportOptions:
    """Where a report goes.

    Attributes:
        output: NAME.html or NAME.md; None: none is wanted.
        document: A Markdown document that gets it between its two marks, with plots beside it; None: none.
        plots: A folder for the plots as SVG files; None: none, or beside `document`.
        limit_ms: A latency that 99 of 100 calls are to keep.
        command: That was run, to be shown.
        any_weights: Whether runs of one network with other weights belong together.
    """

    output: Path | None = None
    document: Path | None = None
    plots: Path | None = None
    limit_ms: float | None = None
    command: str = ""
    any_weights: bool = False


def write_report(options: ReportOptions, runs: Sequence[BenchFile]) -> tuple[tuple[Section, ...], tuple[Path, ...]]:
    """Write what is wanted.

    Args:
        options: What and where to.
        runs: At least one.

    Returns:
        What it says, and the files that were written.

    Raises:
        MissingError: A package is not installed.
        StorageError: A file cannot be written.
        UsageError: The output's name ends in neither .html nor .md, or nothing is wanted; or runs of different networks
            were to be put together.
    """
    html = _check(options)
    drawn = html or options.plots is not None or options.document is not None
    found = sections(runs, limit_ms=options.limit_ms, draw=drawn, any_weights=options.any_weights)
    folder = options.plots or (options.document.parent if options.document is not None else None)
    pictures = _pictures(found, folder) if folder is not None else {}
    contents = [(path, svg.encode()) for named in pictures.values() for path, svg, _ in named]
    if options.output is not None:
        text = page(found, options.command) if html else _standing_alone(found, options, pictures)
        contents.append((options.output, text.encode()))
    write_together(contents)
    written = [path for path, _ in contents]
    if options.document is not None:
        put_into(options.document, markdown(found, options.command, _links(pictures, options.document.parent)))
        written.append(options.document)
    return found, tuple(written)


def page(found: Sequence[Section], command: str) -> str:
    """The HTML text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("face3d_trt.bench.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    house = files("face3d_trt.parity.page").joinpath("templates", "style.css").read_text(encoding="utf-8")
    own = files(__package__).joinpath("templates", "bench.css").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(
        style=f"{house}\n{own}",
        sections=found,
        command=command,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )


Pictures = dict[str, list[tuple[Path, str, str]]]  # anchor of a section to path, SVG and words of its plots


def _pictures(found: Sequence[Section], folder: Path) -> Pictures:
    return {
        section.anchor: [
            (folder / f"{_DOC_PREFIX}{section.anchor}-{plot.name}.svg", plot.svg, plot.text) for plot in section.plots
        ]
        for section in found
    }


def _links(pictures: Pictures, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Relative to a document's folder."""
    return {
        anchor: [(Path(os.path.relpath(path, folder)).as_posix(), text) for path, _, text in named]
        for anchor, named in pictures.items()
    }


def _standing_alone(found: Sequence[Section], options: ReportOptions, pictures: Pictures) -> str:
    assert options.output is not None
    return "# Benchmarks\n\n" + markdown(found, options.command, _links(pictures, options.output.parent))


def _check(options: ReportOptions) -> bool:
    """Find out before any work whether it can be written; whether HTML is wanted."""
    if options.output is None and options.document is None and options.plots is None:
        raise UsageError("nothing is to be written", allowed="-o NAME.html, -o NAME.md, --doc FILE.md, --plots DIR")
    suffix = options.output.suffix.lower() if options.output is not None else ""
    if options.output is not None and suffix not in _SUFFIXES:
        raise UsageError(f"{options.output}: a report is HTML or Markdown", allowed="a name that ends in .html or .md")
    wanted = _NEEDS if suffix == ".html" else _NEEDS[1:] if options.plots or options.document else ()
    for module, purpose in wanted:
        require(module, "compare", f"bench report, of which it {purpose},")
    for path in (options.output, options.document, options.plots and options.plots / "plot.svg"):
        if path is not None:
            check_output(path)
    return suffix == ".html"
