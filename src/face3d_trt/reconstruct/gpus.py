"""Which engines a run has: one for each GPU, or some on the CPU."""

from __future__ import annotations

import re

from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.errors import MissingError, UsageError

CPU = -1  # stands for the CPU where others are indices of GPUs
_ALLOWED = "all, indices of GPUs like 0,1, or cpu (cpu,cpu: two engines)"


def find_devices(text: str) -> tuple[int, ...]:
    """Devices, one engine process each: indices of GPUs in CUDA's order, or CPU.

    Args:
        text: "all" is every visible GPU, or the CPU once where there is none.

    Raises:
        UsageError: Malformed, or a GPU twice.
        MissingError: There is no such GPU.
    """
    words = [word.strip() for word in text.split(",")]
    if words == ["all"]:
        return tuple(range(len(visible_gpus()))) or (CPU,)
    if all(word == "cpu" for word in words):
        return (CPU,) * len(words)
    if not all(re.fullmatch(r"\d{1,4}", word) for word in words) or len(set(words)) < len(words):
        raise UsageError(f"--devices {text}", allowed=_ALLOWED)
    there = len(visible_gpus())
    for word in words:
        if int(word) >= there:
            raise MissingError(
                f"--devices {text}: there is no GPU {word}",
                allowed=f"0 to {there - 1}, or cpu" if there else "cpu: no GPU is visible",
                run="nvidia-smi",
            )
    return tuple(map(int, words))


def device_name(device: int) -> str:
    """For people: "GPU 0", "the CPU"."""
    return "the CPU" if device == CPU else f"GPU {device}"
