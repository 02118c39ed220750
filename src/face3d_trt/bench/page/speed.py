"""Tables of speed: throughput, speed-up, latency, int8 against fp16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from face3d_trt.bench.knee import SHARE
from face3d_trt.bench.page.series import MODE_TITLES, Named
from face3d_trt.bench.page.table import Table, by_batch
from face3d_trt.bench.page.words import NOTHING, percent, significant, times
from face3d_trt.bench.ratios import Rival, best_torch, float32_torch, int8_pairs, speed_up

if TYPE_CHECKING:
    from face3d_trt.bench.records import Mode, Row


def throughput(lines: Sequence[Named], limit_ms: float | None) -> Table | None:
    """Images per second, with the error and the knee of each series."""
    more = {"error": [_error(each) for each in lines], "knee": [_batch(each.knee) for each in lines]}
    note = (
        "Calls back to back. Error: root mean square difference from float32 over the spread between pictures, of the "
        f"coefficient group where that is largest. Knee: the smallest batch with {percent(SHARE)} of the best rate."
    )
    if limit_ms is not None:
        title = f"for {limit_ms:g} ms"
        more[title] = [_batch(each.within(limit_ms)) for each in lines]
        note += f" For {limit_ms:g} ms: the knee among the batches whose 99 % latency keeps that limit."
    return by_batch("Images per second", note, _lines(lines), _rate, significant, best=max, more=more)


def milliseconds(lines: Sequence[Named]) -> Table | None:
    """Milliseconds of a call, back to back."""
    note = "Calls back to back, none waited for."
    return by_batch("Milliseconds of a call", note, _lines(lines), _ms, significant, best=min)


def latencies(lines: Sequence[Named]) -> list[Table]:
    """p50 and p99 of single calls."""
    notes = {"p50": "Each call is waited for; by the host's clock.", "p99": "Of 100 calls 99 are no slower."}
    found = (
        by_batch(f"Latency {name}, ms", note, _lines(lines), _latency(name), significant, best=min)
        for name, note in notes.items()
    )
    return [table for table in found if table is not None]


def against_best(rows: Sequence[Row], lines: Sequence[Named]) -> Table | None:
    """Times as fast as the best PyTorch row of the batch, which the last line names."""
    note = "The last line names it, as --backend does."
    table = _against(rows, lines, best_torch, "Times as fast as the best PyTorch", note)
    if table is None:
        return None
    batches = [int(batch) for batch in table.head[1:]]
    mode = lines[0].series.mode
    best = [_fastest_of_all(rows, mode, batch) for batch in batches]
    named = tuple(NOTHING if rival is None else rival.row.backend for rival in best)
    return Table(table.title, table.note, table.head, (*table.rows, ("the best PyTorch", *named)), 1, table.best)


def against_float32(rows: Sequence[Row], lines: Sequence[Named]) -> Table | None:
    """Times as fast as float32 PyTorch."""
    return _against(rows, lines, float32_torch, "Times as fast as float32 PyTorch", "")


def int8_table(rows: Sequence[Row]) -> Table | None:
    """Int8 beside fp16."""
    pairs = int8_pairs(rows)
    if not pairs:
        return None
    found = tuple(
        (
            MODE_TITLES[pair.mode].lower(),
            pair.family,
            pair.base.input,
            pair.base.arithmetic,
            str(pair.batch),
            significant(_rate(pair.base) or 0.0),
            significant(_rate(pair.int8) or 0.0),
            times(pair.times),
        )
        for pair in pairs
    )
    head = ("mode", "by", "input", "against", "batch", "its images/s", "int8, images/s", "times as fast")
    return Table("Images per second, int8 beside the next higher precision", "The fastest of each.", head, found, 4)


def _fastest_of_all(rows: Sequence[Row], mode: Mode, batch: int) -> Rival | None:
    """Of either input."""
    found = [best_torch(rows, mode, batch, input) for input in ("float32", "uint8")]
    known = [rival for rival in found if rival is not None]
    return min(known, key=lambda rival: _ms(rival.row) or float("inf"), default=None)


def _against(
    rows: Sequence[Row],
    lines: Sequence[Named],
    find: Callable[[Sequence[Row], Mode, int, str], Rival | None],
    title: str,
    note: str,
) -> Table | None:
    def ratio(row: Row) -> float | None:
        rival = find(rows, row.mode, row.batch, row.input)
        return speed_up(row, rival.row) if rival is not None and row.rate is not None else None

    other = any(
        rival is not None and not rival.same_input
        for each in lines
        for row in each.rows
        for rival in [find(rows, row.mode, row.batch, row.input)]
    )
    if other:
        note = f"{note} Where PyTorch did not run on a row's kind of input, its other one is the measure.".strip()
    return by_batch(title, note, _lines(lines), ratio, times, best=max)


def _lines(lines: Sequence[Named]) -> dict[str, dict[int, Row]]:
    return {each.name: each.by_batch for each in lines}


def _error(line: Named) -> str:
    errors = [row.error for row in line.rows if row.error is not None]
    return percent_small(max(errors)) if errors else NOTHING


def percent_small(share: float) -> str:
    """`9.0 %`, `0.47 %`, `0.0001 %`: two digits."""
    return f"{100 * share:.2g} %"


def _batch(batch: int | None) -> str:
    return NOTHING if batch is None else str(batch)


def _rate(row: Row) -> float | None:
    return row.rate.images_per_second if row.rate else None


def _ms(row: Row) -> float | None:
    return row.rate.ms if row.rate else None


def _latency(name: str) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        return None if row.latency is None else float(getattr(row.latency, name))

    return value
