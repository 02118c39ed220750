"""The figures of each step as Markdown; empty where it did not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from . import claims
from .claims import Figures, Results, title
from .commands import shown

MLPERF = (
    94_620  # images/s, ResNet-50 offline, one of 8 × H200-SXM: MLPerf inference v4.1, closed, NVIDIA, TensorRT 10.2
)
SAYS = 240  # characters of an error that are shown
NAME = 100  # and of a layer's name
SLOWEST = 6  # layers of a plan


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(content: object) -> str:
    return str(content).replace("|", "\\|").replace("\n", "<br>")


def _builds(results: Results) -> str:
    rows = []
    for step, built in results.items():
        if step.startswith("build_"):
            counts = ", ".join(f"{count} {kind}" for kind, count in built["backbone"].items())
            size = f"{built['plan_bytes'] / 1e6:.1f} MB"
            cache = "with a timing cache" if built["cached"] else ""
            rows.append((title(step.removeprefix("build_")), f"{built['seconds']} s", cache, size, counts))
    if not rows:
        return ""
    commands = "\n".join(shown(built["command"]) for step, built in results.items() if step.startswith("build_"))
    lines = [
        "### Builds",
        f"```bash\n{commands}\n```",
        table(("plan", "time", "", "size", "the 53 backbone convolutions"), rows),
    ]
    for step, built in results.items():
        if step.startswith("build_") and built["exceptions"]:
            names = ", ".join(f"`{name}` {kind}" for name, kind in built["exceptions"].items())
            lines.append(f"Not in the precision asked for, {title(step.removeprefix('build_'))}: {names}.")
    return "\n\n".join(lines)


def _parity(results: Results) -> str:
    if (ran := results.get("compare")) is None:
        return ""
    names = list(ran["plans"])
    groups = list(dict.fromkeys(group for name in names for group in ran["plans"][name]["groups"]))
    rows = [(group, *(f"{ran['plans'][name]['groups'].get(group, 0):.2%}" for name in names)) for group in groups]
    failures = [text for name in names for text in ran["plans"][name]["failures"]]
    note = "Root-mean-square error of the engine over the variation between pictures, the worst of all batch sizes."
    lines = ["### The engine against float32 PyTorch", f"```bash\n{shown(ran['command'])}\n```"]
    return "\n\n".join([*lines, table(("", *map(title, names)), rows), note, *failures])


def _rates(results: Results) -> str:
    ours, torch = results.get("engine_only"), results.get("torch_best")
    if ours is None and torch is None:
        return ""
    plans = ours["plans"] if ours else {}
    batches = [str(batch) for batch in sorted({int(b) for plan in plans.values() for b in plan} | {1, 64, 256})]
    rows = []
    if torch is not None:
        rows.append(
            ("PyTorch, half, channels_last, compiled", *(_rate(torch["engine_only"], batch) for batch in batches))
        )
    rows += [(title(name), *(_rate(plan, batch) for batch in batches)) for name, plan in plans.items()]
    lines = ["### The engine alone", table(("", *(f"batch {batch}" for batch in batches)), rows)]
    lines.append(
        "Input on the GPU, CUDA events, several inputs in rotation, median of three windows within 3 % (~: not)."
    )
    if ours is not None:
        best = max(entry["rate"] for name, plan in plans.items() if "int8" in name for entry in plan.values())
        lines.append(f"int8 at its fastest is {best / MLPERF:.0%} of MLPerf's {MLPERF:,} images/s for one H200.")
        front = ours["front"]
        cells = [
            (p, f"{f['float32_ms']:.3f} ms", f"{f['uint8_ms']:.3f} ms", f"{f['cost']:+.1%}") for p, f in front.items()
        ]
        lines.append(table(("front, batch 256, in turns", "float32 input", "uint8 input", "cost"), cells))
    return "\n\n".join(lines)


def _rate(entries: Figures, batch: str) -> str:
    if (entry := entries.get(batch)) is None:
        return ""
    mark = "" if entry.get("stable", True) else "~"
    return f"{mark}{entry['ms']:.3f} ms, {entry['rate']:,.0f}/s"


def _host(results: Results) -> str:
    if (ran := results.get("host_to_host")) is None:
        return ""
    rows = []
    for precision, found in ran["throughput"].items():
        rows.append((precision, "the engine alone", f"{found['engine_only_ms']:.3f} ms", "", ""))
        for name, way in found["ways"].items():
            rows.append((precision, name, f"{way['ms']:.3f} ms", f"{way['rate']:,.0f}/s", f"{way['share']:.1%}"))
    lines = [
        "### Through `Engine`, uint8 in, coefficients out",
        table(("", f"batch {found['batch']}", "", "", "share"), rows),
    ]
    calls = [
        (precision, name, *(f"{call[p]:.3f}" for p in ("p50", "p90", "p99", "max")), f"{call['calls']:,}")
        for precision, found in ran["latency"].items()
        for name, call in found.items()
        if isinstance(call, Mapping)
    ]
    if (torch := results.get("torch_best")) is not None:
        for name, side in (("compiled", "host_to_host"), ("compiled, its copies not counted", "engine_only")):
            single = torch[side]["1"]["single"]
            figures = (f"{single[p]:.3f}" for p in ("p50", "p90", "p99", "max"))
            calls.append(("PyTorch", name, *figures, f"{single['calls']:,}"))
    lines.append(table(("one call, ms", "", "p50", "p90", "p99", "max", "calls"), calls))
    return "\n\n".join(lines)


def _layers(results: Results) -> str:
    if (ran := results.get("layers")) is None:
        return ""
    lines = [
        "### What the time is made of",
        "By TensorRT's profiler, which runs layer by layer: the sum is above the engine's own time.",
    ]
    for name, batches in ran["plans"].items():
        for batch, found in batches.items():
            kinds = [
                f"{kind} {sums['ms'] / found['total_ms']:.0%} ({sums['layers']})"
                for kind, sums in (*found["by_precision"].items(), *found["by_kind"].items())
            ]
            lines.append(f"**{title(name)}, batch {batch}**: {found['total_ms']:.3f} ms: {', '.join(kinds)}.")
            if batch != "1":
                rows = [
                    (_short(each["name"]), each["kind"], each["precision"], f"{each['ms']:.4f}")
                    for each in found["top"][:SLOWEST]
                ]
                lines.append(table(("slowest layers", "", "", "ms"), rows))
    return "\n\n".join(lines)


def _short(name: str) -> str:
    """A fused layer by its operations, without the weights that it names too."""
    parts = [part for part in name.split(" + ") if not part.endswith((".weight", "_QuantizeLinear"))]
    return " + ".join(part.removeprefix("backbone.") for part in parts)[:NAME]


def _memory(results: Results) -> str:
    ours, torch = results.get("memory"), results.get("torch_memory")
    rows = []
    if ours is not None:
        found = ours["fp16"]
        rows.append(
            (
                "fp16 engine, batches up to 4",
                _gigabytes(found["bytes"]),
                f"{_gigabytes(found['context_bytes'])} of it CUDA's context",
            )
        )
    for batch, found in (torch["batches"] if torch else {}).items():
        rows.append((f"PyTorch float32, batch {batch}", _gigabytes(found["bytes"]), f"{found['ms']:.2f} ms"))
    return "### GPU memory of the process\n\n" + table(("", "memory", ""), rows) if rows else ""


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


def _soak(results: Results) -> str:
    rows = []
    if (ran := results.get("soak")) is not None:
        rows += [
            ("calls, rows, seconds", f"{ran['calls']:,}, {ran['rows']:,}, {ran['seconds']}"),
            (
                "largest deviation; allowed; pictures differ by at least",
                f"{ran['worst']:.2g}; {ran['tolerance']:.2g}; {ran['least_distance']:.2g}",
            ),
            ("host memory after the first thousand", f"+{ran['host_growth'] / 2**20:.1f} MiB"),
            *(("error", text) for text in ran["errors"][:3]),
        ]
    if (ran := results.get("open_close")) is not None:
        alone = ran["bare"]
        grown = f"GPU +{alone['gpu_growth'] / 2**20:.1f} MiB, host +{alone['host_growth'] / 2**20:.1f} MiB"
        rows.append((f"{alone['cycles']} times opened and closed as the only user of the GPU", grown))
    return "### Under load\n\n" + table(("", ""), rows) if rows else ""


def _bad_plans(results: Results) -> str:
    if (ran := results.get("bad_plans")) is None:
        return ""
    rows = []
    for name, case in ran["cases"].items():
        said = case["message"] or case["stderr"][-SAYS:]
        first = said.partition("\n  allowed:")[0].partition("\n  run:")[0].strip().splitlines()
        ended = case["error"] or f"ended with {case['code']}"
        rows.append(
            (name, ended, " ".join(line.strip() for line in first)[:SAYS], "" if claims.is_refused(case) else "MISS")
        )
    return "### Bad plans\n\n" + table(("plan", "error", "says", ""), rows)


SECTIONS: tuple[Callable[[Results], str], ...] = (
    _builds,
    _parity,
    _rates,
    _host,
    _layers,
    _memory,
    _soak,
    _bad_plans,
)
