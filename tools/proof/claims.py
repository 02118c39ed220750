"""What was promised, and whether the figures keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Figures = Mapping[str, Any]
Results = Mapping[str, Figures]  # a step's figures by its name; steps that did not run are absent

CONVOLUTIONS = 50  # of the backbone's 53
RATIOS = {"fp16": 1.45, "int8": 2.6}  # against PyTorch's best, at batch 256
SHARE = 0.97  # of the engine-only rate, through Engine
P50_MS, P99_TO_P50, OF_TORCH = 0.30, 1.2, 0.5  # batch 1, int8, with graphs
FRONT = 0.03  # what uint8 input may cost, at batch 256
MEMORY = 1.0e9  # bytes: fp16, profiles up to batch 4
FLAT = 2 << 20  # bytes: one page of the GPU's memory
HOST_FLAT = 32 << 20  # bytes: what Python's own allocator may move about
CALLS, CYCLES = 200_000, 1000


@dataclass(frozen=True)
class Claim:
    """One line of the table.

    Attributes:
        number: Of the claim's group.
        text: What is claimed.
        wanted: The number wanted.
        found: The number found.
        verdict: `not run` where a step is missing.
    """

    number: int
    text: str
    wanted: str
    found: str
    verdict: Literal["PASS", "MISS", "not run"]


def judge(results: Results, skipped: Mapping[str, str] | None = None) -> list[Claim]:
    """All claims, in order.

    Args:
        results: What the steps found.
        skipped: Steps that this machine cannot show, with the reason.
    """
    return [claim for group in GROUPS for claim in group(results, skipped or {})]


def _claim(number: int, text: str, wanted: str, found: str | None, kept: bool) -> Claim:
    if found is None:
        return Claim(number, text, wanted, "", "not run")
    return Claim(number, text, wanted, found, "PASS" if kept else "MISS")


def _parity(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    compared = results.get("compare")
    for precision in ("fp16", "int8"):
        text = f"small stand-in, {precision}: compare passes with the engine as a runner"
        found, kept = None, False
        if compared is not None:
            plan = compared["plans"][f"small_{precision}"]
            kept = plan["passed"] and plan["engine_ran"]
            worst = max(plan["groups"].values(), default=0.0)
            found = f"worst group {worst:.2%}" if plan["engine_ran"] else "the engine did not run"
        yield _claim(1, text, "passed", found, kept)


def _precision(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    for name in ("small_int8", "uint8_int8", "float32_int8", "small_fp16", "uint8_fp16", "float32_fp16"):
        built, precision = results.get(f"build_{name}"), name.rpartition("_")[2]
        text = f"{title(name)}: backbone convolutions in {precision}, by the inspector"
        count = built["backbone"].get(precision, 0) if built else 0
        yield _claim(1, text, f"≥ {CONVOLUTIONS} of 53", f"{count} of 53" if built else None, count >= CONVOLUTIONS)


def _throughput(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    for precision, wanted in RATIOS.items():
        text = f"{precision} against PyTorch's best, batch 256, float32 input"
        found, ratio = None, 0.0
        if "torch_best" in results and "engine_only" in results:
            ours = results["engine_only"]["plans"][f"float32_{precision}"].get("256", {"rate": 0.0})["rate"]
            theirs = results["torch_best"]["engine_only"]["256"]["rate"]
            ratio = ours / theirs
            found = f"{ratio:.2f} times ({ours:,.0f}/s to {theirs:,.0f}/s)"
        yield _claim(2, text, f"≥ {wanted} times", found, ratio >= wanted)


def _overlap(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    ran = results.get("host_to_host")
    for precision in ("int8", "fp16"):
        text = f"{precision}: host to host, overlapped, share of the engine-only rate at batch 256"
        found, share = None, 0.0
        if ran is not None:
            ways = {name: way for name, way in ran["throughput"][precision]["ways"].items() if overlaps(name)}
            name, best = max(ways.items(), key=lambda item: float(item[1]["share"]))
            share = float(best["share"])
            found = f"{share:.1%} ({best['rate']:,.0f}/s, {name})"
        yield _claim(3, text, f"≥ {SHARE:.0%}", found, share >= SHARE)


def overlaps(way: str) -> bool:
    """Whether calls overlap in this way of calling the engine."""
    return way.startswith(("map", "submit"))


def _latency(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    ran, torch = results.get("host_to_host"), results.get("torch_best")
    call = ran["latency"]["int8"]["graphs"] if ran else None
    text = "int8, batch 1 with graphs, host to host"
    found = None if call is None else f"{call['p50']:.3f} ms"
    yield _claim(3, f"{text}: p50", f"≤ {P50_MS:.2f} ms", found, call is not None and call["p50"] <= P50_MS)
    ratio = call["p99"] / call["p50"] if call else 0.0
    found = None if call is None else f"{ratio:.2f} ({call['p99']:.3f} ms over {call['calls']:,} calls)"
    yield _claim(3, f"{text}: p99 over p50", f"≤ {P99_TO_P50}", found, ratio <= P99_TO_P50)
    found, share = None, 0.0
    if call is not None and torch is not None:
        alone, whole = torch["engine_only"]["1"], torch["host_to_host"]["1"]["single"]
        share = call["p50"] / alone["single"]["p50"]
        theirs = f"PyTorch's single call {alone['single']['p50']:.3f} ms"
        others = f"back to back {alone['ms']:.3f} ms, host to host {whole['p50']:.3f} ms"
        found = f"{share:.2f} ({call['p50']:.3f} ms to {theirs}; {others})"
    text = f"{text}: p50 over that of PyTorch's best, a single call, its copies not counted"
    yield _claim(3, text, f"≤ {OF_TORCH}", found, share <= OF_TORCH)


def _front(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    ran = results.get("engine_only")
    for precision in ("int8", "fp16"):
        cost = ran["front"][precision]["cost"] if ran else 0.0
        text = f"{precision}: what uint8 input costs at batch 256"
        yield _claim(3, text, f"≤ {FRONT:.0%}", f"{cost:.1%}" if ran else None, cost <= FRONT)


def _memory(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    ran = results.get("memory")
    held = ran["fp16"]["bytes"] if ran else 0
    found = f"{held / 1e9:.2f} GB ({ran['fp16']['by']})" if ran else None
    yield _claim(4, "fp16, batches up to 4: GPU memory of the process", "< 1.0 GB", found, held < MEMORY)


def _soak(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    ran = results.get("soak")
    text, wanted = f"{CALLS:,} calls from 16 threads in changing batch sizes: rows that are wrong", "0"
    right = ran is not None and ran["wrong_rows"] == 0 and not ran["errors"] and ran["calls"] >= CALLS
    found = f"{ran['wrong_rows']} of {ran['rows']:,} in {ran['calls']:,} calls" if ran else None
    yield _claim(5, text, wanted, found, right)
    grown = ran["gpu_growth"] if ran else 0
    text, found = "GPU memory after the first thousand calls", f"+{grown / 2**20:.1f} MiB{_by(ran)}" if ran else None
    yield _claim(5, text, "flat (≤ 2 MiB)", found, grown <= FLAT)
    clean = ran is not None and ran["code"] == 0 and not ran["stderr"]
    found = f"exit code {ran['code']}, {len(ran['stderr'])} characters" if ran else None
    yield _claim(5, "its end: exit code, and what stands on stderr", "0, nothing", found, clean)
    opened = results.get("open_close")
    text = f"{CYCLES:,} times opened and closed: growth of GPU and host memory"
    found, kept = None, False
    if opened is not None:
        gpu, host = opened["gpu_growth"], opened["host_growth"]
        kept = gpu <= FLAT and host <= HOST_FLAT and opened["cycles"] >= CYCLES and opened["code"] == 0
        found = f"+{gpu / 2**20:.1f} MiB{_by(opened)}, +{host / 2**20:.1f} MiB in {opened['cycles']:,} cycles"
    yield _claim(5, text, "none (≤ 2 MiB, ≤ 32 MiB)", found, kept)


def _by(ran: Figures) -> str:
    """Whose memory was weighed."""
    return f" ({ran['gpu_by']})" if "gpu_by" in ran else ""


def _together(results: Results, skipped: Mapping[str, str]) -> Iterator[Claim]:
    beside, two = results.get("beside_torch"), results.get("two_engines")
    for order in ("torch first", "pycuda first"):
        ran = beside[order] if beside else None
        bad = ran["wrong"] + ran["torch_wrong"] + len(ran["errors"]) + len(ran["stderr"]) if ran else 0
        found = f"{bad} wrong in {ran['rounds']:,} rounds, exit code {ran['code']}" if ran else None
        text = f"torch and the runtime's contexts, buffers and streams in one process, {order}"
        yield _claim(6, text, "0 wrong", found, ran is not None and bad == 0 and ran["code"] == 0)
    yield _at_once("fp16 and int8 engines at once on one GPU", two)
    wrong = two["pycuda"]["wrong"] if two else 0
    found = f"{wrong} values differ" if two else None
    yield _claim(6, "pycuda's own arrays in, host and device arrays out", "0 differ", found, wrong == 0)
    if (reason := skipped.get("devices")) is not None:
        yield Claim(6, "engines on GPU 0 and GPU 1 at once", "0 wrong", reason, "not run")
    else:
        yield _at_once("engines on GPU 0 and GPU 1 at once", results.get("devices"))


def _at_once(text: str, ran: Figures | None) -> Claim:
    together = ran["together"] if ran else None
    bad = together["wrong"] + len(together["errors"]) if together else 0
    found = f"{bad} wrong of {together['calls']:,} calls" if together else None
    return _claim(6, text, "0 wrong", found, bad == 0)


def _bad_plans(results: Results, _: Mapping[str, str]) -> Iterator[Claim]:
    ran = results.get("bad_plans")
    found, kept = None, False
    if ran is not None:
        refused = sum(is_refused(case) for case in ran["cases"].values())
        runs = ran["good"]["code"] == 0 and ran["good"]["error"] is None
        kept = refused == len(ran["cases"]) and runs
        found = f"{refused} of {len(ran['cases'])}; the plan itself {'runs' if runs else 'does not run'}"
    yield _claim(7, "bad plans: an error that says what is wrong, and no crash", "all", found, kept)


def is_refused(case: Figures) -> bool:
    """Whether a bad plan was refused as one, before or by TensorRT, and the process ended as it should."""
    return case["code"] == 0 and case["error"] in ("PlanError", "EngineError")


def title(name: str) -> str:
    """`uint8_int8` → "full size, uint8 input, int8"."""
    first, precision = name.split("_")
    place = {
        "small": "small stand-in",
        "low": "full size, uint8 input, batches up to 4",
        "uint8": "full size, uint8 input",
        "float32": "full size, float32 input",
    }[first]
    return f"{place}, {precision}"


GROUPS: tuple[Callable[[Results, Mapping[str, str]], Iterator[Claim]], ...] = (
    _parity,
    _precision,
    _throughput,
    _overlap,
    _latency,
    _front,
    _memory,
    _soak,
    _together,
    _bad_plans,
)
