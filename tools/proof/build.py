"""Claim 1, first half: plans of both precisions, and what their convolutions compute in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from face3d_trt.records import LayerRecord

    from .results import Settings

STAGE_BLOCKS = (3, 4, 6, 3)  # of ResNet50, He et al. 2015, table 1
_CONVOLUTION = re.compile(r"backbone\.(?:layer\d\.\d+\.)?(?:conv\d|downsample\.0)(?=/Conv(?![\w.]))")


def run(settings: Settings, name: str, graph: str, precision: str, profiles: str, gate: bool = True) -> dict[str, Any]:
    """Build one plan; without a gate, one that fails it gets its name too.

    Returns:
        `{"command", "seconds", "cached", "plan_bytes", "precision", "profiles", "layers", "convolutions", "inspected",
        "backbone": {"int8": 53}, "exceptions": {name: precision}}`; `cached`: whether a timing cache was there.
    """
    from face3d_trt.engine.flavour import find_flavour
    from face3d_trt.records import Manifest, manifest_path

    from .commands import face3d

    plan, cache = settings.plan(name), settings.out / "plans" / "timing-cache"
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.unlink(missing_ok=True)  # a plan that is there would be reused, and nothing measured
    cached = cache.is_file()
    words: list[str | Path] = ["build", "--typed", settings.graph(graph)]
    words += ["--timing-cache", cache] if find_flavour().has_timing_cache else []
    for shapes in profile_texts(profiles, graph.split(".")[1], settings.largest):
        words += ["--profile", shapes]
    words += [] if gate else ["--no-gate"]
    called = face3d(*words, "-o", plan, folder=settings.out)
    manifest = Manifest.read(manifest_path(plan))
    found = backbone(manifest.engine_layers)
    return {
        "command": called.command,
        "seconds": round(called.seconds, 1),
        "cached": cached,
        "plan_bytes": plan.stat().st_size,
        "precision": precision,
        "profiles": [each.model_dump() for each in manifest.profiles],
        "layers": manifest.layers,
        "convolutions": manifest.convolutions,
        "inspected": manifest.inspected,
        "backbone": counted(found.values()),
        "exceptions": {layer: kind for layer, kind in found.items() if kind != precision},
        "files": [f"plans/{plan.name}", f"plans/{plan.name}.json"],
    }


def profile_texts(kind: str, layout: str, largest: int) -> tuple[str, ...]:
    """The profiles of a plan as `build --profile` takes them.

    Args:
        kind: "small" (1 to 32, as `build` has it without being told), "low" (1 to 4), "large" (1 to `largest`, tuned
            for 256), "serving" ("low" and "large").
        layout: Of the input, "float32" or "uint8".
        largest: Batch.
    """
    batches = {
        "small": ((1, 8, 32),),
        "low": ((1, 1, 4),),
        "large": ((1, min(256, largest), largest),),
        "serving": ((1, 1, 4), (1, min(256, largest), largest)),
    }[kind]
    sides = "3x224x224" if layout == "float32" else "224x224x3"
    return tuple(
        ",".join(f"{word}={batch}x{sides}" for word, batch in zip(("min", "opt", "max"), each, strict=True))
        for each in batches
    )


def backbone(layers: Iterable[LayerRecord]) -> dict[str, str]:
    """What each of the backbone's 53 convolutions computes in, by its module's name.

    A fused layer's name holds the names of all nodes in it. "not found" is a convolution that no layer names.
    """
    found = dict.fromkeys(convolution_names(), "not found")
    for layer in layers:
        for name in _CONVOLUTION.findall(layer.name) if layer.convolution else ():  # others bear its name too
            if name in found:
                found[name] = layer.precision
    return found


def convolution_names() -> tuple[str, ...]:
    """`backbone.conv1`, `backbone.layer1.0.conv1`, …: 1 + 3 × 16 + 4 = 53."""
    names = ["backbone.conv1"]
    for stage, blocks in enumerate(STAGE_BLOCKS, start=1):
        for block in range(blocks):
            inside = ["conv1", "conv2", "conv3", *(["downsample.0"] if block == 0 else [])]
            names += [f"backbone.layer{stage}.{block}.{name}" for name in inside]
    return tuple(names)


def counted(kinds: Iterable[str]) -> dict[str, int]:
    """How many of each."""
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return counts
