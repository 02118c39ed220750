"""Write the page: one file, without scripts, that loads nothing."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from importlib.resources import files
from typing import TYPE_CHECKING

from face3d_trt import __version__
from face3d_trt.files import check_output, write_text
from face3d_trt.optional import require
from face3d_trt.parity.page.sensitivity import read_layers, sensitivity_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from face3d_trt.parity.compare import Comparison

TOOLS = ("numpy", "torch", "onnx", "onnxruntime", "onnxruntime-gpu", "polygraphy", "scikit-image", "tensorrt")
_NEEDS = (("jinja2", "fills in its template"), ("matplotlib", "has the colours of its heat maps"))


@dataclass(frozen=True)
class PageOptions:
    """The page.

    Attributes:
        file: Where to.
        sensitivity: What `bisect` wrote; None: what lies beside each plan, if anything.
        command: That was run, to be shown.
    """

    file: Path
    sensitivity: Path | None = None
    command: str = ""


def check_page(options: PageOptions) -> None:
    """Find out before the comparison whether its page can be written.

    Raises:
        MissingError: A package is not installed.
        StorageError: The file cannot be written.
        UsageError: The sensitivity file cannot be read.
    """
    for module, purpose in _NEEDS:
        require(module, "compare", f"--report, of which it {purpose},")
    check_output(options.file)
    if options.sensitivity is not None:
        read_layers(options.sensitivity)


def write_page(options: PageOptions, comparisons: Sequence[Comparison]) -> None:
    """Write the page about some plans, whole or not at all.

    Raises:
        StorageError: It cannot be written.
        UsageError: The sensitivity file is no such file any more.
    """
    write_text(options.file, page(options, comparisons))


def page(options: PageOptions, comparisons: Sequence[Comparison]) -> str:
    """The HTML text; raises as `write_page`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from face3d_trt.parity.page.content import plan_of
    from face3d_trt.parity.page.faces import colour_bar
    from face3d_trt.parity.page.words import answer, percent, shorten

    environment = Environment(
        loader=PackageLoader("face3d_trt.parity.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["shorten"] = shorten
    plans = [
        plan_of(each, at, sensitivity_of(each.verdict.plan, options.sensitivity))
        for at, each in enumerate(comparisons, 1)
    ]
    verdicts = [comparison.verdict for comparison in comparisons]
    return environment.get_template("page.html").render(
        style=files(__package__).joinpath("templates", "style.css").read_text(encoding="utf-8"),
        plans=plans,
        answer=answer([verdict.passed for verdict in verdicts]),
        head_mm=next((verdict.head_mm for verdict in verdicts if verdict.head_mm is not None), None),
        bar=colour_bar(),
        command=options.command,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        tools=_tools(),
    )


def _tools() -> str:
    """`Python 3.11.2, numpy 2.4.6, …`, those that are installed."""
    versions = {name: _version(name) for name in TOOLS}
    installed = [f"{name} {version}" for name, version in versions.items() if version is not None]
    return ", ".join([f"Python {platform.python_version()}", *installed])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
