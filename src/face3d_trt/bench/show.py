"""A run as a table in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from face3d_trt.bench.records import BenchFile, Row

_MODES = {"engine": "device", "host": "numpy to numpy"}


def show(file: BenchFile, console: Console) -> None:
    """Print it.

    Args:
        file: Of a run.
        console: Where to.
    """
    from rich.table import Table

    here = file.machine
    rows = _ordered(file.rows)
    sizes = {(row.height, row.width) for row in rows}
    console.print(f"{file.model} on {here.gpu or here.cpu}, {here.cores} cores", markup=False)
    for mode in dict.fromkeys(row.mode for row in rows):
        table = Table("backend", "batch", "p50 ms", "p99 ms", "images/s", "error", "memory MB", "note")
        for column in table.columns[1:7]:
            column.justify = "right"
        for row in rows:
            if row.mode == mode:
                table.add_row(*_cells(row, sized=len(sizes) > 1))
        console.print(table if here.gpu is None else f"\n{_MODES[mode]}:", markup=False)
        if here.gpu is not None:
            console.print(table)


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """Backends as they came, batches ascending: a run with a budget measures them in another order."""
    places = {name: at for at, name in enumerate(dict.fromkeys(map(_name, rows)))}
    return sorted(rows, key=lambda row: (row.height * row.width, places[_name(row)], row.batch))


def _name(row: Row) -> str:
    return row.backend if row.backend != "trt" or row.plan is None else row.plan


def _cells(row: Row, *, sized: bool) -> tuple[str, ...]:
    name = f"{_name(row)}, {row.height}x{row.width}" if sized else _name(row)
    if row.rate is None or row.latency is None:
        return (name, str(row.batch), "", "", "", "", "", row.skipped or "")
    memory = row.memory.process or row.memory.allocator or row.memory.host
    return (
        name,
        str(row.batch),
        f"{row.latency.p50:.3f}",
        f"{row.latency.p99:.3f}",
        f"{row.rate.images_per_second:,.1f}",
        "" if row.error is None else f"{row.error:.2%}",
        "" if memory is None else f"{memory / 1e6:,.0f}",
        "" if row.rate.settled else f"not settled: {row.rate.spread:.0%}",
    )
