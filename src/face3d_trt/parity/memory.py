"""Does a batch fit into this machine's memory? ONNX Runtime is given it whole, and a machine that swaps is lost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.parity.batches import Batch

# Tensors of the size of the stem's output that ONNX Runtime holds at its peak. Measured on a quarter-width ResNet50
# (ONNX Runtime 1.32): 4.2 for float32, 3.7 for fp16 and int8; the rest is for the growth of its arena.
TENSORS = 5
_NO_LIMIT = 1 << 60  # cgroup v1 writes almost 2^63 where there is none


@dataclass(frozen=True)
class HostMemory:
    """What may be used, and by what network.

    Attributes:
        free: Bytes; None where the system does not tell.
        width: Channels of the network's first convolution.
        sessions: Of ONNX Runtime, each of which keeps what it once took.
    """

    free: int | None
    width: int
    sessions: int

    def needed(self, batch: Batch) -> int:
        """Estimated bytes: the stem and the first stage give (rows, width, height/2, width/2) float32, or as much."""
        pixels = batch.size * batch.height * batch.width
        return self.sessions * TENSORS * pixels * self.width + 2 * 3 * 4 * pixels  # the input, made and fed

    def fits(self, batch: Batch) -> bool:
        """Whether it may be run."""
        return self.free is None or self.needed(batch) <= self.free


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that a process may still take: the kernel's estimate, or less where a container's limit is below it."""
    meminfo = _read(root / "proc/meminfo")
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    limits = [int(found[1]) << 10] if found else []
    groups = root / "sys/fs/cgroup"
    for limit, usage, folder, cache in (
        ("memory.max", "memory.current", groups, "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", groups / "memory", "total_inactive_file"),
    ):
        top, used = _read(folder / limit).strip(), _read(folder / usage).strip()
        if top.isdigit() and used.isdigit() and int(top) < _NO_LIMIT:
            reclaimable = re.search(rf"^{cache} (\d+)", _read(folder / "memory.stat"), re.MULTILINE)
            limits.append(int(top) - int(used) + (int(reclaimable[1]) if reclaimable else 0))
    return max(0, min(limits)) if limits else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
