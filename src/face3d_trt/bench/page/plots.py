"""The plots of a group: throughput, latency, memory, speed-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from face3d_trt.bench.page.series import MODE_TITLES, MODES, Named, of_mode
from face3d_trt.bench.page.svg import Panel, Plot, Style, draw
from face3d_trt.bench.ratios import best_torch, speed_up

if TYPE_CHECKING:
    from face3d_trt.bench.records import Row

# By family: at least 3:1 against white and against the dark page's cards (WCAG 2.2, graphics), and apart without colour
# vision by their markers and dashes.
_COLOURS = {
    "torch": ("#7d8590", "#9a6f4a", "#1f8a96", "#8a5fbf", "#4a8fd0", "#75852f", "#3a6ea5"),
    "ort": ("#2f8f5b", "#6b8f1f", "#1f8a8a"),
    "trt": ("#d1495b", "#b5651d", "#c2569f", "#a8761a"),
}
_MARKERS = "osD^vP*X<>"
_LINES = {"torch": ("--", 1.2), "ort": ("-.", 1.2), "trt": ("-", 2.0)}  # dashes, width in points


def plots(every: Sequence[Named]) -> tuple[Plot, ...]:
    """What can be drawn of these series.

    Raises:
        MissingError: matplotlib is not installed.
    """
    styles = styles_of(every)
    drawn = (_plot(every, styles, *each) for each in _WANTED)
    return tuple(plot for plot in drawn if plot is not None)


def styles_of(every: Sequence[Named]) -> dict[str, Style]:
    """By name; a series has one style in both modes."""
    styles: dict[str, Style] = {}
    count: dict[str, int] = {}
    for each in every:
        if each.name not in styles:
            family = each.series.backend.partition("-")[0]
            colours, at = _COLOURS.get(family, _COLOURS["torch"]), count.get(family, 0)
            dashes, width = _LINES.get(family, (":", 1.3))
            dashes = ":" if family == "torch" and at % 2 else dashes  # there are many of them
            styles[each.name] = Style(colours[at % len(colours)], _MARKERS[at % len(_MARKERS)], dashes, width)
            count[family] = at + 1
    return styles


def _plot(
    every: Sequence[Named],
    styles: Mapping[str, Style],
    name: str,
    title: str,
    label: str,
    log: bool,
    value: Callable[[Sequence[Row], Row], float | None],
) -> Plot | None:
    panels = tuple(_panels(every, value, level=(1.0, "the best PyTorch") if name == "speed-up" else None))
    if name == "memory":
        panels = panels[:1]  # the same in both modes, but for page-locked memory of the host
    if not panels:
        return None
    modes = " and ".join(panel.title.lower() for panel in panels)
    return draw(name, f"{title} against batch, {modes}.", panels, styles, label, log=log)


def _panels(
    every: Sequence[Named], value: Callable[[Sequence[Row], Row], float | None], level: tuple[float, str] | None
) -> Iterator[Panel]:
    for mode in MODES:
        own = of_mode(every, mode)
        rows = [row for each in own for row in each.rows]
        lines = {}
        for each in own:
            line = {row.batch: found for row in each.rows if (found := value(rows, row)) is not None}
            if line:
                lines[each.name] = line
        if lines:
            yield Panel(MODE_TITLES[mode], lines, level)


def _rate(_: Sequence[Row], row: Row) -> float | None:
    return row.rate.images_per_second if row.rate else None


def _p50(_: Sequence[Row], row: Row) -> float | None:
    return row.latency.p50 if row.latency else None


def _memory(rows: Sequence[Row], row: Row) -> float | None:
    """On the GPU, where that is known of any row; else on the host."""
    on_gpu = any(each.memory.process for each in rows)
    nbytes = row.memory.process if on_gpu else row.memory.host
    return None if nbytes is None else nbytes / 1e9


def _speed_up(rows: Sequence[Row], row: Row) -> float | None:
    rival = best_torch(rows, row.mode, row.batch, row.input)
    return speed_up(row, rival.row) if rival is not None and row.rate is not None else None


_WANTED: tuple[tuple[str, str, str, bool, Callable[[Sequence[Row], Row], float | None]], ...] = (
    ("throughput", "Images per second", "images/s", True, _rate),
    ("latency", "Latency of single calls, the median,", "ms", True, _p50),
    ("speed-up", "Times as fast as the best PyTorch", "times", False, _speed_up),
    ("memory", "Peak memory of the process", "GB", False, _memory),
)
