"""Claims against figures that keep them, and against figures that miss one."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools.proof.claims import judge
from tools.proof.report import BEGIN, END, put_into, report
from tools.proof.results import Result

ROOT = Path(__file__).resolve().parents[2]
PERCENTILES = {"p50": 0.28, "p90": 0.285, "p99": 0.3, "min": 0.27, "max": 0.9, "mean": 0.28, "calls": 5000}
CASE = {"code": 0, "error": "PlanError", "message": "a.plan is cut off\n  allowed: all of it", "stderr": ""}


def built(precision: str) -> dict[str, Any]:
    return {
        "command": "face3d-trt build",
        "seconds": 60.1,
        "cached": False,
        "plan_bytes": 25_000_000,
        "precision": precision,
        "backbone": {precision: 52, "fp32": 1},
        "exceptions": {"backbone.conv1": "fp32"},
    }


def rates(milliseconds: float) -> dict[str, Any]:
    return {
        str(batch): {"ms": milliseconds * batch, "rate": 1000 / milliseconds, "stable": True, "single": None}
        for batch in (1, 64, 256)
    }


def kept() -> dict[str, dict[str, Any]]:
    """Figures of every step, all as wanted."""
    names = ("small_fp16", "small_int8", "uint8_int8", "uint8_fp16", "float32_int8", "float32_fp16")
    groups = {"identity": 0.004, "angle": 0.002}
    plan = {"passed": True, "engine_ran": True, "batches": [], "failures": [], "groups": groups}
    ways = {
        "submit, pinned arrays": {"ms": 3.9, "rate": 65_641.0, "share": 0.985},
        "one after the other": {"ms": 4.6, "rate": 55_000.0, "share": 0.999},
    }
    through = {"batch": 256, "engine_only_ms": 3.84, "ways": ways}
    latency = {"graphs": PERCENTILES, "plain": {**PERCENTILES, "p50": 0.4}, "had_graphs": True}
    profile = {
        "total_ms": 4.0,
        "by_precision": {"int8": {"layers": 50, "ms": 3.0}},
        "by_kind": {"CaskConvolution": {"layers": 50, "ms": 3.0}},
        "top": [{"name": "backbone.conv1 | x", "kind": "CaskConvolution", "precision": "int8", "ms": 0.5}],
    }
    beside = {"rounds": 1000, "wrong": 0, "torch_wrong": 0, "errors": [], "code": 0, "stderr": ""}
    grown = {"gpu_growth": 0, "host_growth": 1 << 20, "code": 0, "stderr": "", "seconds": 90.0}
    together = {"calls": 2400, "wrong": 0, "errors": []}
    return {
        "machine_engine": {
            "flavour": "tensorrt",
            "version": "8.6.0",
            "gpus": [{}],
            "cores": 16,
            "system": "Linux x86_64",
        },
        "machine_torch": {"torch": "2.11.0", "cuda": "13.0", "cudnn": 9},
        **{f"build_{name}": built(name.rpartition("_")[2]) for name in names},
        "compare": {"command": "face3d-trt compare", "plans": {"small_fp16": plan, "small_int8": dict(plan)}},
        "torch_best": {"engine_only": rates(0.04), "host_to_host": {"1": {"single": PERCENTILES}}}
        | {
            "engine_only": {
                **rates(0.04),
                "1": {"ms": 0.415, "rate": 2410.0, "stable": False, "single": {**PERCENTILES, "p50": 0.573}},
            }
        },
        "engine_only": {
            "plans": {name: rates(0.015 if "int8" in name else 0.025) for name in names[2:]},
            "front": {p: {"batch": 256, "float32_ms": 3.6, "uint8_ms": 3.66, "cost": 0.0167} for p in ("int8", "fp16")},
        },
        "layers": {"plans": {"uint8_int8": {"1": profile, "256": profile}}},
        "host_to_host": {
            "throughput": {p: copy.deepcopy(through) for p in ("int8", "fp16")},
            "latency": {p: copy.deepcopy(latency) for p in ("int8", "fp16")},
        },
        "memory": {"fp16": {"bytes": 800_000_000, "by": "NVML, this process", "context_bytes": 500_000_000}},
        "torch_memory": {"batches": {"1": {"bytes": 1_400_000_000, "by": "NVML, this process", "ms": 4.8}}},
        "soak": {**grown, "calls": 200_000, "rows": 10**6, "wrong_rows": 0, "errors": []}
        | {"worst": 1e-3, "tolerance": 2e-3, "least_distance": 0.9},
        "open_close": {**grown, "cycles": 1000, "bare": {"cycles": 30, "gpu_growth": 0, "host_growth": 0}},
        "beside_torch": {"torch first": beside, "pycuda first": dict(beside)},
        "two_engines": {"together": together, "pycuda": {"wrong": 0, "stayed": [8, 257]}},
        "devices": {"together": together},
        "bad_plans": {"good": {"code": 0, "error": None, "message": None}, "cases": {"cut off": CASE, "noise": CASE}},
    }


def test_figures_as_wanted_keep_every_claim():
    judged = judge(kept())
    assert {claim.verdict for claim in judged} == {"PASS"}
    assert {claim.number for claim in judged} == set(range(1, 8))


def test_without_figures_nothing_is_claimed():
    assert {claim.verdict for claim in judge({})} == {"not run"}


def change(step: str, value: Any, *keys: str) -> Callable[[dict[str, Any]], None]:
    def apply(figures: dict[str, Any]) -> None:
        inner = figures[step]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (change("compare", False, "plans", "small_int8", "engine_ran"), "int8: compare passes"),
        (change("compare", False, "plans", "small_fp16", "passed"), "fp16: compare passes"),
        (change("build_uint8_int8", {"int8": 49, "fp16": 4}, "backbone"), "uint8 input, int8: backbone convolutions"),
        (change("torch_best", 28_000.0, "engine_only", "256", "rate"), "fp16 against PyTorch's best"),
        (change("engine_only", 64_000.0, "plans", "float32_int8", "256", "rate"), "int8 against PyTorch's best"),
        (
            change("host_to_host", 0.96, "throughput", "int8", "ways", "submit, pinned arrays", "share"),
            "int8: host to host",
        ),
        (change("host_to_host", 0.301, "latency", "int8", "graphs", "p50"), "graphs, host to host: p50"),
        (change("host_to_host", 0.4, "latency", "int8", "graphs", "p99"), "p99 over p50"),
        (change("torch_best", 0.55, "engine_only", "1", "single", "p50"), "p50 over that of PyTorch's best"),
        (change("engine_only", 0.031, "front", "int8", "cost"), "int8: what uint8 input costs"),
        (change("memory", 1_000_000_000, "fp16", "bytes"), "GPU memory of the process"),
        (change("soak", 1, "wrong_rows"), "rows that are wrong"),
        (change("soak", 199_999, "calls"), "rows that are wrong"),
        (change("soak", ["EngineError: no"], "errors"), "rows that are wrong"),
        (change("soak", 3 << 20, "gpu_growth"), "after the first thousand"),
        (change("soak", "warning", "stderr"), "what stands on stderr"),
        (change("soak", -6, "code"), "what stands on stderr"),
        (change("open_close", 4 << 20, "gpu_growth"), "opened and closed"),
        (change("open_close", 10, "cycles"), "opened and closed"),
        (change("beside_torch", 1, "pycuda first", "wrong"), "one process, pycuda first"),
        (change("beside_torch", -11, "torch first", "code"), "one process, torch first"),
        (change("two_engines", 1, "together", "wrong"), "engines at once on one GPU"),
        (change("two_engines", 1, "pycuda", "wrong"), "pycuda's own arrays"),
        (change("devices", ["EngineError: no"], "together", "errors"), "GPU 0 and GPU 1"),
        (change("bad_plans", {**CASE, "code": -11, "error": None}, "cases", "noise"), "bad plans"),
        (change("bad_plans", {**CASE, "error": None}, "cases", "noise"), "bad plans"),
        (change("bad_plans", {**CASE, "error": "builtins.ValueError"}, "cases", "noise"), "bad plans"),
        (change("bad_plans", "PlanError", "good", "error"), "bad plans"),
    ],
)
def test_each_figure_can_miss_its_claim(spoil, text):
    figures = copy.deepcopy(kept())
    spoil(figures)
    missed = [claim.text for claim in judge(figures) if claim.verdict == "MISS"]
    assert missed
    assert any(text in each for each in missed), missed


def test_latency_is_held_against_a_single_call_of_the_rival_and_all_its_figures_are_named():
    (claim,) = (claim for claim in judge(kept()) if "PyTorch's best, a single call" in claim.text)
    assert claim.found == (
        "0.49 (0.280 ms to PyTorch's single call 0.573 ms; back to back 0.415 ms, host to host 0.280 ms)"
    )


def test_calls_that_wait_for_each_other_do_not_count_as_overlapped():
    figures = copy.deepcopy(kept())
    del figures["host_to_host"]["throughput"]["int8"]["ways"]["submit, pinned arrays"]
    figures["host_to_host"]["throughput"]["int8"]["ways"]["map, ordinary arrays"] = {
        "ms": 4.0,
        "rate": 1.0,
        "share": 0.9,
    }
    missed = [claim for claim in judge(figures) if claim.verdict == "MISS"]
    assert [claim.found for claim in missed] == ["90.0% (1/s, map, ordinary arrays)"]


def results(**changed: Any) -> dict[str, Result]:
    gpu = {"name": "NVIDIA H200", "compute_capability": "9.0", "driver": "580.159"}
    made = {name: Result(name, figures, 1.0, "2026-11-30T12:00:00", gpu=gpu) for name, figures in kept().items()}
    return {**made, **changed}


def test_the_report_shows_machine_command_claims_and_every_section():
    text, claims = report(results(), "python tools/gpu_proof.py --out DIR")
    assert "python tools/gpu_proof.py --out DIR" in text
    assert "NVIDIA H200 (9.0), driver 580.159" in text
    assert "tensorrt 8.6.0" in text
    assert text.count("| PASS |") == len(claims)
    assert "| conv1 \\| x |" in text  # or the table would have a column more
    assert "~0.415 ms" in text  # a figure that never settled is marked
    assert "rehearsal" not in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.endswith("|")


def test_what_this_machine_cannot_show_has_its_reason():
    skipped = Result("devices", skipped="this machine has 1 GPU")
    text, claims = report(results(devices=skipped), "x")
    assert [claim.found for claim in claims if claim.verdict == "not run"] == ["this machine has 1 GPU"]
    assert "this machine has 1 GPU" in text


def test_a_rehearsal_says_that_it_is_one():
    text, _ = report(results(soak=Result("soak", kept()["soak"], scale=0.01)), "x")
    assert "rehearsal" in text


def test_a_report_of_nothing_can_be_written():
    text, claims = report({}, "x")
    assert "never" in text
    assert claims


def test_the_tables_replace_the_former_ones_and_leave_the_rest_of_the_document(tmp_path):
    document = tmp_path / "gpu-proof.md"
    document.write_text("# Title\n\nWords before.\n")
    put_into(document, "first")
    assert document.read_text().startswith("# Title\n\nWords before.\n")
    document.write_text(document.read_text() + "\nWords after.\n")
    put_into(document, "second")
    text = document.read_text()
    assert "first" not in text
    assert text.index("Words before.") < text.index(BEGIN) < text.index("second") < text.index(END)
    assert text.index(END) < text.index("Words after.")


def test_the_script_lists_its_steps_and_refuses_an_unknown_one():
    script = str(ROOT / "tools" / "gpu_proof.py")
    listed = subprocess.run([sys.executable, script, "--list"], capture_output=True, text=True, check=True).stdout
    assert {"soak", "bad_plans"} <= {line.split()[0] for line in listed.splitlines()}
    wrong = subprocess.run([sys.executable, script, "--steps", "sok", "--list"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "'sok'" in wrong.stderr


def test_the_script_writes_a_report_of_what_is_there_and_fails_on_a_missed_claim(tmp_path):
    figures = kept()
    figures["memory"]["fp16"]["bytes"] = 2_000_000_000
    Result("memory", figures["memory"], 1.0, "2026-11-30").write(tmp_path)
    script = str(ROOT / "tools" / "gpu_proof.py")
    command = [sys.executable, script, "--out", str(tmp_path), "--report"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "2.00 GB" in (tmp_path / "report.md").read_text()


def test_the_report_names_no_folder_of_the_machine_that_measured(tmp_path):
    figures = kept()["build_small_fp16"]
    line = "face3d-trt build --typed {} --timing-cache plans/timing-cache -o plans/small_fp16.plan"
    for typed in ("../../t/graphs/a.onnx", "/mnt/x/graphs/a.onnx", "graphs/a.onnx", "../made/a.onnx", "/made/a.onnx"):
        Result("build_small_fp16", {**figures, "command": line.format(typed)}, 1.0, "2026-11-30").write(tmp_path)
        script, python = str(ROOT / "tools" / "gpu_proof.py"), f"{tmp_path}/py 3.10"
        command = [sys.executable, script, "--out", str(tmp_path), "--graphs", f"{tmp_path}/g", "--report"]
        command += ["--engine-python", f"'{python}' -X utf8", "--scale", "0.5", f"--doc={tmp_path}/proof.md"]
        subprocess.run(command, capture_output=True, text=True, check=False)
        text = (tmp_path / "report.md").read_text()
        assert line.format("graphs/a.onnx") in text
        assert "python tools/gpu_proof.py --out DIR --engine-python " in text
        assert " -X utf8" in text
        assert " --graphs DIR/graphs --scale 0.5 --doc proof.md --report\n" in text
        assert str(tmp_path) not in text
