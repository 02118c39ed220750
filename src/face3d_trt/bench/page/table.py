"""A table before it is HTML or Markdown, and tables of series by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.bench.page.words import NOTHING

if TYPE_CHECKING:
    from face3d_trt.bench.records import Row

SKIPPED = "skipped"
Line = Mapping[int, "Row"]  # a series: batch to row


@dataclass(frozen=True)
class Table:
    """Texts in rows and columns.

    Attributes:
        title: What it shows.
        note: How it is to be read; may be empty.
        head: Of the columns.
        rows: As long as `head`.
        texts: How many columns at the left are words; the others are figures.
        best: Cells that are the best of their column, (row, column).
    """

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1
    best: frozenset[tuple[int, int]] = frozenset()


def by_batch(
    title: str,
    note: str,
    lines: Mapping[str, Line],
    value: Callable[[Row], float | None],
    shown: Callable[[float], str],
    *,
    best: Callable[[Sequence[float]], float] | None = None,
    more: Mapping[str, Sequence[str]] | None = None,
) -> Table | None:
    """A line for each series, a column for each batch; None where nothing has a figure.

    Args:
        title: Of the table.
        note: Of the table.
        lines: Name of the series to its rows.
        value: The figure of a row.
        shown: The figure as text.
        best: `min` or `max`: which cell of a column is marked.
        more: Columns behind the batches: title to a text for each line.
    """
    batches = sorted({batch for line in lines.values() for batch in line})
    values = {
        name: [value(line[batch]) if batch in line else None for batch in batches] for name, line in lines.items()
    }
    if not any(each is not None for found in values.values() for each in found):
        return None
    columns = dict(more or {})
    rows = tuple(
        (name, *_cells(line, batches, values[name], shown), *(texts[at] for texts in columns.values()))
        for at, (name, line) in enumerate(lines.items())
    )
    marked = set()
    for column in range(len(batches)) if best is not None and len(lines) > 1 else ():
        known = [found[column] for found in values.values()]
        figures = [each for each in known if each is not None]
        if best is not None and len(figures) > 1:
            marked.add((known.index(best(figures)), column + 1))
    return Table(title, note, ("batch", *map(str, batches), *columns), rows, 1, frozenset(marked))


def _cells(
    line: Line, batches: Sequence[int], figures: Sequence[float | None], shown: Callable[[float], str]
) -> Iterator[str]:
    for batch, figure in zip(batches, figures, strict=True):
        if figure is not None:
            yield shown(figure)
        else:
            yield SKIPPED if batch in line and line[batch].skipped is not None else NOTHING
