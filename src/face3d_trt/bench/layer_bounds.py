"""Which layers hold the time that the bounds do not explain.

An engine's layer is called after the graph's nodes that were fused into it, so their counted work is its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.bench.roofline import bound_of
from face3d_trt.bench.work import total
from face3d_trt.engine.layers import MOVES

if TYPE_CHECKING:
    from face3d_trt.bench.records import Ceilings, LayerProfile, LayerTime, NodeWork, Work

_JOINED = re.compile(r"\s*(?:\+|\|\|)\s*")  # fused one behind the other, or side by side
_NODE = re.compile(r"backbone\.(?:layer(\d)\.\d+\.)?(conv\d|downsample|maxpool|avgpool)")
_BLOCK = {"conv1": "first 1x1", "conv2": "3x3", "conv3": "last 1x1", "downsample": "1x1 of the shortcut"}
_STEM, _POOLING, _HEADS, _OTHER = "first convolution", "pooling", "heads", "reformats and the rest"


@dataclass(frozen=True)
class LayerBound:
    """A layer, or several, beside the least time for their work.

    Attributes:
        name: Of the layer without its weights, or of the group.
        kind: TensorRT's, or how many layers the group has.
        ms: Measured by TensorRT's profiler.
        bound_ms: 0 for what only moves or pools; None where nothing could be counted.
        limit: What bounds it: arithmetic or memory.
    """

    name: str
    kind: str
    ms: float
    bound_ms: float | None
    limit: str

    @property
    def rest_ms(self) -> float:
        """What the bound does not explain; below 0 where a cache did better than memory."""
        return self.ms - (self.bound_ms or 0.0)


def layer_bounds(profile: LayerProfile, work: Work, ceilings: Ceilings) -> tuple[LayerBound, ...]:
    """Each layer, in the engine's order; what took no time is left out."""
    nodes = {node.name: node for node in work.nodes}
    return tuple(_bounded(layer, profile, nodes, ceilings) for layer in profile.layers if layer.ms > 0)


def by_stage(layers: Iterable[LayerBound]) -> tuple[LayerBound, ...]:
    """Summed by the backbone's stages, in the network's order."""
    return _sums(layers, stage_of)


def by_place(layers: Iterable[LayerBound]) -> tuple[LayerBound, ...]:
    """Summed by the place in a block: first 1x1, 3x3, last 1x1, shortcut; the slowest first."""
    return tuple(sorted(_sums(layers, place_of), key=lambda each: -each.ms))


def slowest_rest(layers: Sequence[LayerBound], most: int) -> tuple[LayerBound, ...]:
    """The layers that hold most of what their bounds do not explain."""
    return tuple(sorted(layers, key=lambda each: -each.rest_ms)[:most])


def stage_of(layer: LayerBound) -> str:
    """`stage 1`, `first convolution`, `heads`, ..."""
    found = None if layer.kind == MOVES else _NODE.search(layer.name)
    if found and found[1]:
        return f"stage {found[1]}"
    return place_of(layer)


def place_of(layer: LayerBound) -> str:
    """`3x3`, `last 1x1`, `first convolution`, `heads`, ..."""
    if layer.kind == MOVES:
        return _OTHER
    found = _NODE.search(layer.name)
    if found and found[1]:
        return _BLOCK.get(found[2], _OTHER)
    if found:
        return _STEM if found[2] == "conv1" else _POOLING
    return _HEADS if "final_layers" in layer.name else _OTHER


def shown_name(name: str) -> str:
    """A layer's name without weights and their quantizers, which every convolution carries."""
    parts = [part for part in _JOINED.split(name) if not re.search(r"\.weight(_\w+)?$", part)]
    return " + ".join(part.removeprefix("backbone.") for part in parts) if parts else name


def _bounded(layer: LayerTime, profile: LayerProfile, nodes: dict[str, NodeWork], ceilings: Ceilings) -> LayerBound:
    named = () if layer.kind == MOVES else _JOINED.split(layer.name)  # a reformat's name has the nodes that it serves
    own = [nodes[part] for part in named if part in nodes]
    if not own:
        return LayerBound(layer.name, layer.kind, layer.ms, 0.0, "")
    bound = bound_of(total(own), ceilings, profile.precision, profile.batch)
    return LayerBound(layer.name, layer.kind, layer.ms, bound.ms, bound.limit or "")


def _sums(layers: Iterable[LayerBound], key: Callable[[LayerBound], str]) -> tuple[LayerBound, ...]:
    groups: dict[str, list[LayerBound]] = {}
    for layer in layers:
        groups.setdefault(key(layer), []).append(layer)
    return tuple(_sum(name, own) for name, own in groups.items())


def _sum(name: str, layers: Sequence[LayerBound]) -> LayerBound:
    bounds = [layer.bound_ms for layer in layers]
    known = [bound for bound in bounds if bound is not None]
    limits = {layer.limit: 0.0 for layer in layers}
    for layer in layers:
        limits[layer.limit] += layer.bound_ms or 0.0
    return LayerBound(
        name=name,
        kind=f"{len(layers)}",
        ms=sum(layer.ms for layer in layers),
        bound_ms=sum(known) if known else None,
        limit=max(limits, key=lambda limit: limits[limit]),
    )
