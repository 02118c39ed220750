"""CUDA graphs of a module, one for each shape of its input."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from face3d_trt.model.mixed import Mixed

WARM_UPS = 3  # calls before the capture: cuDNN and cuBLAS choose kernels and take their workspaces


@dataclass(frozen=True, eq=False)
class Capture:
    """One graph, and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    pixels: Tensor
    results: tuple[Tensor, ...]


class Graphs:
    """Captures at the first call of a shape and replays from then on.

    All graphs share one pool of memory: they never run at the same time, and only what a graph gives out is kept. The
    least recently used graph is dropped when there are more than `limit`.

    Args:
        module: On the GPU.
        device: That GPU.
        limit: How many graphs are kept.
    """

    def __init__(self, module: Mixed, device: torch.device, limit: int) -> None:
        self._module = module
        self._device = device
        self._limit = limit
        self._captures: OrderedDict[tuple[torch.Size, bool], Capture] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self._captures)

    def __call__(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Run on the current stream.

        Args:
            pixels: As for the module, on any device, of any float type and memory order; copied into the graph's own.

        Returns:
            The graph's own results, which the next call of this shape overwrites.
        """
        key = (pixels.shape, pixels.dtype == torch.uint8)
        found = self._captures.get(key)
        if found is None:
            found = self._capture(pixels)
            self._captures[key] = found
            if len(self._captures) > self._limit:
                torch.cuda.synchronize(self._device)  # the oldest may still run
                self._captures.popitem(last=False)[1].graph.reset()
        self._captures.move_to_end(key)
        found.pixels.copy_(pixels, non_blocking=True)
        found.graph.replay()
        return found.results

    def _capture(self, pixels: Tensor) -> Capture:
        whole = pixels.dtype == torch.uint8
        memory = torch.contiguous_format if whole else self._module.memory
        kind = torch.uint8 if whole else self._module.dtype
        held = torch.empty(pixels.shape, dtype=kind, device=self._device, memory_format=memory)
        held.copy_(pixels)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                self._module(held)
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads of the process may go on allocating.
        with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
            results = self._module(held)
        return Capture(graph, held, results)
