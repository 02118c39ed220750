"""The tables of `monitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from face3d_trt.monitor.counts import Progress
    from face3d_trt.monitor.state import State

GIB = 1 << 30
UNKNOWN = "?"


def tables(state: State, before: State | None = None) -> Group:
    """GPUs, stages and images; rates are those since `before`, where it is given."""
    from rich.console import Group

    shown = [gpu_table(state)] if state.gpus else []
    if state.progress is not None:
        seconds = 0.0 if before is None else state.time - before.time
        shown += pipeline_tables(state.progress, None if before is None else before.progress, seconds)
    return Group(*shown)


def gpu_table(state: State) -> Table:
    """One line a GPU."""
    table = _table("GPU", "name", "busy", "memory, GiB", "°C", "W", "MHz", "clocks held down by")
    for gpu in state.gpus:
        now = gpu.reading
        memory = f"{_figure(now.memory_used, 1 / GIB, '.1f')} / {_figure(now.memory_total, 1 / GIB, '.0f')}"
        table.add_row(
            str(gpu.index),
            gpu.name,
            _figure(now.utilization, 1, ".0%"),
            memory,
            _figure(now.temperature_c),
            _figure(now.watts),
            _figure(now.sm_mhz),
            ", ".join(now.throttled),
        )
    return table


def pipeline_tables(now: Progress, before: Progress | None, seconds: float) -> list[Table]:
    """Stages with what waits for them, and images by outcome."""
    stages = _table("stage", "waiting", "done", "done/s", "ms each")
    for name, stage in now.stages.items():
        former = before.stages.get(name) if before else None
        waiting = "" if stage.queue is None else str(stage.queue)
        waiting += "" if stage.capacity is None else f" / {stage.capacity}"
        each = stage.seconds / stage.calls * 1e3 if stage.calls else None
        rate = _rate(stage.calls, former.calls if former else None, seconds)
        stages.add_row(name, waiting, str(stage.calls), rate, "" if each is None else f"{each:.2f}")
    images = _table("images", "so far", "per second")
    for outcome, count in now.images.items():
        images.add_row(outcome, str(count), _rate(count, before.images.get(outcome, 0) if before else None, seconds))
    if now.batches:
        images.add_row("in batches", str(now.batched), _rate(now.batched, before.batched if before else None, seconds))
        images.add_row("images a batch", f"{now.batched / now.batches:.1f}", "")
    for device, limit in now.batch_limits.items():
        images.add_row(f"GPU {device} held to batches of", str(limit), "")
    return [table for table in (stages, images) if table.row_count]


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    left = {"name", "clocks held down by", "stage", "images"}
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right")
    return table


def _figure(value: float | None, factor: float = 1, form: str = ".0f") -> str:
    return UNKNOWN if value is None else format(value * factor, form)


def _rate(now: int, before: int | None, seconds: float) -> str:
    return "" if before is None or seconds <= 0 else f"{(now - before) / seconds:.1f}"
