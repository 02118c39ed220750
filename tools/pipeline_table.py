"""The table of pipeline_bench.py, for docs/pipeline.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BEGIN = "<!-- written by tools/pipeline_bench.py: begin -->"
END = "<!-- written by tools/pipeline_bench.py: end -->"
_STAGES = ("read rows", "decode 224", "decode 1024", "detect 1024", "products", "write", "infer")
_WHOLE = ("arrays", "jpeg crops", "photos to coefficients", "photos")


def table(results: dict[str, Any]) -> str:
    """What is there of results, as Markdown."""
    parts = [_machine(results), _alone(results), _whole(results), _scaling(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def put_into(document: Path, text: str) -> None:
    """Replace what stands between the marks."""
    whole = document.read_text()
    before, _, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{document} has no marks {BEGIN} and {END}")
    document.write_text(f"{before}{BEGIN}\n{text}{END}{after}")


def _machine(results: dict[str, Any]) -> str:
    facts, engine = results.get("machine", {}), results.get("inputs", {})
    if not facts or "problem" in facts:
        return ""
    gpus = ", ".join(facts["gpus"]) or "no GPU"
    return (
        f"{gpus}; {facts['cores']} cores, {facts['workers']} workers; {facts['plan']}, "
        f"{engine.get('backend', 'engine unknown')}, {engine.get('input', '')} input; {facts['seconds']:g} s each; "
        f"textures of {facts['texture_size']}²; {facts['date']}."
    )


def _alone(results: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {_number(found['images_per_s'])} | {found['processes']} | {found['ms_each']:.3g} ms |"
        for name in _STAGES
        if "images_per_s" in (found := results.get(name, {}))
    ]
    head = "| stage alone | pictures/s | processes | one picture in one process |\n|---|---|---|---|"
    return "\n".join([head, *rows]) if rows else ""


def _whole(results: dict[str, Any]) -> str:
    rows = [_row(name, found) for name in _WHOLE if "images_per_s" in (found := results.get(name, {}))]
    head = (
        "| the whole, from | pictures/s | steady | workers could | engines could | of the slower | GPU busy "
        "(NVML) | limit |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *rows]) if rows else ""


def _row(name: str, found: dict[str, Any]) -> str:
    share = found.get("of_slowest")
    cells = (
        name,
        _number(found["images_per_s"]),
        _number(found["steady_per_s"]),
        _number(found.get("workers_could")),
        _number(found.get("engines_could")),
        "" if share is None else f"{share:.0%}",
        ", ".join(f"{busy:.0%}" for busy in found["gpu_busy"].values()) or "no GPU",
        found["limit"],
    )
    return f"| {' | '.join(cells)} |"


def _scaling(results: dict[str, Any]) -> str:
    found = results.get("scaling", {})
    if "times" not in found:
        return ""
    same = found["same_results"]
    return (
        f"Arrays of crops on one device: {_number(found['one']['steady_per_s'])} pictures/s; on "
        f"{len(found['all']['devices'])}: {_number(found['all']['steady_per_s'])}, {found['times']:.2f} times as many. "
        f"Of {same['files']} result files that both runs have, {same['equal']} have the same bytes; "
        f"the lists are {'in the same order' if same['same_order'] else 'NOT the same'}."
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
