"""Plots as SVG: text stays text, colours follow the page or, in a file, the reader's light or dark screen."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from face3d_trt.optional import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Stand-ins that matplotlib takes for colours, and what they become.
_TEXT, _LINE, _PAPER = "#010203", "#040506", "#070809"
_VARIABLES = {_TEXT: "var(--quiet)", _LINE: "var(--line)", _PAPER: "var(--card)"}
_STYLE = (
    "<style>:root{--quiet:#57606a;--line:#d9dee3;--card:#fff}"
    "@media (prefers-color-scheme:dark){:root{--quiet:#a2abb5;--line:#343a41;--card:#1a1d21}}</style>"
)
_FONT = "system-ui, 'Liberation Sans', Arial, sans-serif"
_PANEL_INCHES = (4.5, 3.0)
_LEGEND_LINE_INCHES = 0.165
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "face3d-trt",
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _LINE,
    "axes.facecolor": "none",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "figure.facecolor": _PAPER,
    "path.simplify": True,
}


@dataclass(frozen=True)
class Style:
    """How a series is drawn, in every plot alike."""

    colour: str
    marker: str
    dashes: str
    width: float


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: Above it.
        lines: Name of the series to batch and value.
        level: A value with a line of its own, and what it is; None: none.
    """

    title: str
    lines: Mapping[str, Mapping[int, float]]
    level: tuple[float, str] | None = None


@dataclass(frozen=True)
class Plot:
    """A figure.

    Attributes:
        name: For its file: `throughput`.
        text: What it shows, in words.
        svg: The file's text.
    """

    name: str
    text: str
    svg: str

    def inline(self, prefix: str) -> str:
        """For a page: its colours are the page's, and its ids no other's."""
        text = re.sub(r"^.*?(?=<svg)", "", self.svg, count=1, flags=re.DOTALL).replace(_STYLE, "")
        text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
        return re.sub(r'(url\(|href=")#', rf"\g<1>#{prefix}-", text)


def draw(name: str, text: str, panels: Sequence[Panel], styles: Mapping[str, Style], label: str, *, log: bool) -> Plot:
    """Draw panels side by side, over one legend.

    Args:
        name: For the file.
        text: What it shows, for those who cannot see it.
        panels: At least one.
        styles: Of the series.
        label: Of the vertical axes.
        log: Whether those are logarithmic; the batch's axis always is.

    Raises:
        MissingError: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", "compare", "drawing the plots of a benchmark")
    from matplotlib.figure import Figure

    shown = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    beside = len(panels) == 1  # the legend takes the second panel's place
    below = 0.0 if beside else -(-len(shown) // 2) * _LEGEND_LINE_INCHES + 0.1
    width, height = 2 * _PANEL_INCHES[0], _PANEL_INCHES[1] + below
    with matplotlib.rc_context(_SETTINGS):
        figure: Any = Figure(figsize=(width, height))
        axes = figure.subplots(1, 2, squeeze=False)[0]
        for panel, place in zip(panels, axes, strict=False):
            _fill(place, panel, styles, label, log=log)
        handles = [_handle(styles[each]) for each in shown]
        if beside:
            axes[1].set_axis_off()
            axes[1].legend(handles, shown, loc="upper left", bbox_to_anchor=(-0.2, 1.0), frameon=False)
        else:
            figure.legend(handles, shown, loc="lower left", bbox_to_anchor=(0.02, 0.0), ncol=2, frameon=False)
        figure.subplots_adjust(
            left=0.62 / width, right=1 - 0.1 / width, top=1 - 0.3 / height, bottom=(below + 0.5) / height, wspace=0.2
        )
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return Plot(name, text, _cleaned(written.getvalue(), text))


def _fill(axes: Any, panel: Panel, styles: Mapping[str, Style], label: str, *, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    batches = sorted({batch for line in panel.lines.values() for batch in line})
    for name, line in panel.lines.items():
        style = styles[name]
        axes.plot(
            list(line), list(line.values()), color=style.colour, marker=style.marker, linestyle=style.dashes,
            linewidth=style.width, markersize=4,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.xaxis.set_minor_locator(NullLocator())
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if panel.level is not None:
        axes.axhline(panel.level[0], color=_TEXT, linewidth=0.8, linestyle=":")
    axes.grid(visible=True, which="major")
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel("batch")
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)


def _handle(style: Style) -> Any:
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"marker": style.marker, "linestyle": style.dashes, "markersize": 4}
    return Line2D([], [], color=style.colour, linewidth=style.width, **look)


def _cleaned(svg: str, text: str) -> str:
    """Without preamble and metadata; with the reader's colours and fonts, and a title."""
    svg = re.sub(r"^.*?(?=<svg)", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<style type=\"text/css\">.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    for stand_in, variable in _VARIABLES.items():
        svg = svg.replace(stand_in, variable)
    svg = re.sub(r"(font-size: [\d.]+px); font-family: [^;\"]*", r"\1", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r"(\d+\.\d)\d+", r"\1", svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # nothing refers to groups
    svg = re.sub(r"\s*<g/>", "", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = re.sub(r"\s*\n\s*", "\n", re.sub(r"(?<=\d) ?\n(?=[LMCz\"])", " ", svg))
    told = text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    opening = f'<svg role="img" aria-label="{told}" style="stroke-linejoin: round; font-family: {_FONT}"'
    svg = svg.replace("<svg", opening, 1)
    return re.sub(r"(<svg[^>]*>)", rf"\1{_STYLE}", svg, count=1)
