"""Claim 2: what the engines' time is made of, layer by layer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from face3d_trt.records import LayerRecord

    from .results import Settings

RUNS = 50
TOP = 12
PLANS = ("uint8_int8", "uint8_fp16", "float32_int8", "float32_fp16")


def run(settings: Settings) -> dict[str, Any]:
    """`{plan: {batch: {"total_ms", "by_precision", "by_kind", "top"}}}`; all layers go to `layers-PLAN-BATCH.json`."""
    from .bare import primary_context

    files: list[str] = []
    with primary_context(settings.device):
        found = {
            name: {str(batch): _profile(settings, name, batch, files) for batch in (1, min(256, settings.largest))}
            for name in PLANS
        }
    return {"plans": found, "files": files}


def _profile(settings: Settings, name: str, batch: int, files: list[str]) -> dict[str, Any]:
    from face3d_trt.engine.layers import layer_records, with_times

    from .bare import BareLoop, load, profile_for

    plan = load(settings.plan(name))
    loop = BareLoop(plan, batch)
    times = loop.layer_times(settings.times(RUNS, 3))
    inspection = plan.layer_information(loop.context)
    records = with_times(layer_records(inspection, profile_for(plan, batch)), times)
    loop.close()
    plan.close()
    file = f"layers-{name}-{batch}.json"
    rows = [record.model_dump() for record in records]
    (settings.out / file).write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")
    files.append(file)
    return summary(records)


def summary(records: Iterable[LayerRecord]) -> dict[str, Any]:
    """Sums and the slowest layers; times in milliseconds."""
    timed = [record for record in records if record.time_ms]
    slowest = sorted(timed, key=lambda record: record.time_ms or 0, reverse=True)[:TOP]
    return {
        "total_ms": sum(record.time_ms or 0 for record in timed),
        "by_precision": _sums(timed, lambda record: record.precision),
        "by_kind": _sums(timed, lambda record: record.kind),
        "top": [
            {"name": record.name, "kind": record.kind, "precision": record.precision, "ms": record.time_ms}
            for record in slowest
        ],
    }


def _sums(records: Iterable[LayerRecord], key: Callable[[LayerRecord], str]) -> dict[str, dict[str, float]]:
    sums: dict[str, dict[str, float]] = {}
    for record in records:
        entry = sums.setdefault(key(record), {"layers": 0, "ms": 0.0})
        entry["layers"] += 1
        entry["ms"] += record.time_ms or 0
    return dict(sorted(sums.items(), key=lambda item: -item[1]["ms"]))
