from __future__ import annotations

from pathlib import Path

from face3d_trt.parity.batches import Batch
from face3d_trt.parity.memory import HostMemory, free_memory

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_full_width_batch_of_32_at_1024_px_asks_for_more_than_its_one_activation_of_2_gb() -> None:
    memory = HostMemory(16 * GIB, 64, 2)
    large = Batch(0, 32, 1024, 1024)
    assert memory.needed(large) > 2 * 4 * 32 * 64 * 512 * 512 * 4  # two sessions, four such tensors measured in each
    assert not memory.fits(large)
    assert memory.fits(Batch(0, 32, 224, 224))
    assert HostMemory(None, 64, 2).fits(large)  # a system that does not tell forbids nothing


def test_the_kernels_estimate_counts_where_no_container_sets_a_limit(tmp_path: Path) -> None:
    files = {"proc/meminfo": "MemTotal: 999 kB\nMemAvailable:   2048 kB\n", "sys/fs/cgroup/memory.max": "max\n"}
    assert free_memory(write(tmp_path, files)) == 2 << 20
    assert free_memory(tmp_path / "elsewhere") is None


def test_a_containers_limit_counts_and_its_page_cache_does_not(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": "MemAvailable: 99999999 kB\n",
        "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon {2 * GIB}\ninactive_file {GIB}\n",
    }
    assert free_memory(write(tmp_path, files)) == 2 * GIB


def test_this_machine_tells_a_plausible_size() -> None:
    free = free_memory()
    assert free is None or 1 << 24 < free < 1 << 50
