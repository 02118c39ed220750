"""Which runs are of one machine, and what a machine is called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.bench.records import Machine

_ALWAYS = ("gpu", "cpu")
NOT_KNOWN = {None, "unknown"}
_WHERE_KNOWN = ("compute_capability", "driver", "gpu_memory_bytes")  # one interpreter may have nobody to ask


def same_machine(one: Machine, other: Machine, *, any_driver: bool = False) -> bool:
    """Whether two runs are of the same machine, as far as both know it.

    Args:
        one: Of one run.
        other: Of another, maybe of another interpreter.
        any_driver: Whether another driver is still the same machine.
    """
    if any(getattr(one, name) != getattr(other, name) for name in _ALWAYS):
        return False
    if one.gpu is None and one.cores != other.cores:
        return False
    for name in _WHERE_KNOWN:
        values = {getattr(one, name), getattr(other, name)} - NOT_KNOWN
        if len(values) > 1 and not (name == "driver" and any_driver):
            return False
    return True


def machine_name(machine: Machine) -> str:
    """`NVIDIA H200`, or the CPU's name where it ran on none."""
    return machine.gpu or f"{machine.cpu}, {machine.cores} cores"


def machine_facts(machine: Machine) -> str:
    """All of it but the packages, in a line."""
    parts = []
    if machine.gpu is not None:
        capability = f" ({machine.compute_capability})" if machine.compute_capability else ""
        parts.append(f"{machine.gpu}{capability}")
        if machine.gpu_memory_bytes:
            parts.append(f"{machine.gpu_memory_bytes / 1e9:.0f} GB")
        if machine.driver:
            parts.append(f"driver {machine.driver}")
    return ", ".join([*parts, machine.cpu, f"{machine.cores} cores", machine.system])


def slug(text: str) -> str:
    """For file names and links: `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "machine"
