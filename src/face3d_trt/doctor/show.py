"""A diagnosis as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from face3d_trt import __version__
from face3d_trt.doctor.diagnosis import not_needed
from face3d_trt.doctor.needs import EXTRAS
from face3d_trt.engine.sizes import format_size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from face3d_trt.doctor.diagnosis import Diagnosis
    from face3d_trt.doctor.gpus import GpuFacts
    from face3d_trt.doctor.machine import Machine
    from face3d_trt.doctor.needs import Need

WIDTH = 80  # a terminal's width where nothing is known of it


def as_json(diagnosis: Diagnosis) -> str:
    """Facts and verdicts, indented. `packages` holds what the extras name, not everything installed."""
    machine = diagnosis.machine
    facts: dict[str, Any] = asdict(machine)
    facts["packages"] = {extra: [_entry(need, machine) for need in needs] for extra, needs in EXTRAS.items()}
    answer = {
        "version": __version__,
        "healthy": diagnosis.healthy,
        "tasks": [asdict(task) for task in diagnosis.tasks],
        "warnings": [asdict(warning) for warning in diagnosis.warnings],
        "machine": facts,
    }
    return json.dumps(answer, indent=2)


def _entry(need: Need, machine: Machine) -> dict[str, Any]:
    name, version = need.found(machine) or (need.package, None)
    return {"package": name, "installed": version, "wanted": need.wanted, "ok": need.met(machine)}


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print facts, packages and verdicts; commands stand on lines of their own, unwrapped, to be copied."""
    for table in (_facts(diagnosis.machine), _packages(diagnosis.machine), _tasks(diagnosis)):
        console.print(table)
        console.print()
    for warning in diagnosis.warnings:
        console.print(f"warning: {warning.problem}", style="yellow", markup=False)
        if warning.run:
            console.print(f"  run: {warning.run}", markup=False, soft_wrap=True)
    for run in dict.fromkeys(task.run for task in diagnosis.tasks if task.run):
        names = ", ".join(task.name for task in diagnosis.tasks if task.run == run)
        console.print(f"for {names}:\n  run: {run}", markup=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False, show_edge=False, show_header=bool(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _facts(machine: Machine) -> Table:
    from rich.text import Text

    table = _table("This machine", f"face3d-trt {__version__}")
    table.columns[1].ratio = 1
    rows = [("Python", f"CPython {'.'.join(map(str, machine.python))}, {machine.platform}")]
    rows += [("GPU", _gpu(gpu)) for gpu in machine.gpus] or [("GPU", "no NVIDIA GPU answers")]
    rows += [
        (flavour.module, f"{flavour.version} in {_short(flavour.where)}" if flavour.where else "not importable")
        for flavour in machine.tensorrt
    ] or [("TensorRT", "none installed")]
    rows.append(("disk", f"{format_size(machine.free_bytes)} free in {_short(machine.folder)}"))
    rows += [("cached model", _short(model)) for model in machine.cached_models] or [
        ("cached model", f"none in {_short(machine.model_cache)}")
    ]
    for name, fact in rows:
        table.add_row(name, Text(fact))
    return table


def _packages(machine: Machine) -> Table:
    from rich.text import Text

    table = _table("Extra", "Packages")
    table.columns[1].ratio = 1
    for extra, needs in EXTRAS.items():
        met = all(need.met(machine) for need in needs)
        if not met and not_needed(extra, machine):
            table.add_row(extra, Text(f"not needed {'beside' if machine.gpus else 'without'} a GPU", "dim"))
        else:
            table.add_row(extra, Text(", ").join(_package(need, machine) for need in needs))
    return table


def _package(need: Need, machine: Machine) -> Text:
    from rich.text import Text

    found = need.found(machine)
    if found is None:
        return Text(f"{need.package} MISSING", "red")
    name, version = found
    return Text(f"{name} {version}") if need.met(machine) else Text(f"{name} {version} NOT {need.wanted}", "red")


def _tasks(diagnosis: Diagnosis) -> Table:
    from rich.text import Text

    table = _table("Task", "Here", "")
    table.columns[2].ratio = 1
    for task in diagnosis.tasks:
        table.add_row(task.name, Text("yes", "green") if task.can else Text("no", "red"), Text(task.note))
    return table


def _gpu(gpu: GpuFacts) -> str:
    facts = [gpu.name, f"driver {gpu.driver}"]
    if gpu.compute_capability:
        facts.append(f"compute capability {gpu.compute_capability}")
    if gpu.memory_bytes:
        facts.append(format_size(gpu.memory_bytes))
    return ", ".join(facts)


def _short(path: str | None) -> str:
    """A path with the home folder as `~`."""
    home = str(Path.home())
    return "~" + path[len(home) :] if path and path.startswith(home + "/") else path or ""
