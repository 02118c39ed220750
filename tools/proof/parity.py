"""Claim 1, second half: the engine itself against float32 PyTorch, whose answers cross over as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Settings

PLANS = ("small_fp16", "small_int8")
REFERENCE = "reference.npz"


def save(settings: Settings) -> dict[str, Any]:
    """In the interpreter with torch: float32 PyTorch's answers to the sample faces."""
    from .commands import face3d

    path = settings.out / REFERENCE
    path.unlink(missing_ok=True)
    words = [word for name in PLANS for word in ("--plan", settings.plan(name))]
    called = face3d(
        "compare", *words, "--model", settings.graphs / "small", "--save-reference", path, folder=settings.out
    )
    return {
        "command": called.command,
        "seconds": round(called.seconds, 1),
        "bytes": path.stat().st_size,
        "files": [REFERENCE],
    }


def compare(settings: Settings) -> dict[str, Any]:
    """In the interpreter with TensorRT: `{"command", "code", "plans": {name: {"passed", "engine_ran", "groups"}}}`.

    `groups` has the largest error of the engine at any batch size, as a share of the variation between pictures.
    """
    from .commands import face3d

    path = settings.out / "verdicts.json"
    words: list[str | Path] = [word for name in PLANS for word in ("--plan", settings.plan(name))]
    words += ["--reference", settings.out / REFERENCE, "--json", path]
    called = face3d("compare", *words, folder=settings.out, check=False)
    if not path.is_file():
        raise RuntimeError(f"compare wrote no verdicts and ended with {called.code}")
    verdicts = json.loads(path.read_text(encoding="utf-8"))["verdicts"]
    return {
        "command": called.command,
        "code": called.code,
        "seconds": round(called.seconds, 1),
        "plans": {name: _of(verdict) for name, verdict in zip(PLANS, verdicts, strict=True)},
    }


def _of(verdict: dict[str, Any]) -> dict[str, Any]:
    groups: dict[str, float] = {}
    for row in verdict["rows"]:
        if row["candidate"] == "tensorrt" and row["group"] is not None:
            groups[row["group"]] = max(groups.get(row["group"], 0.0), row["relative"])
    return {
        "passed": verdict["passed"],
        "engine_ran": verdict["engine_ran"],
        "batches": verdict["batches"],
        "failures": [failure["text"] for failure in verdict["failures"]],
        "groups": groups,
    }
