"""The section of docs/accuracy.md about the full size: from figures whose answer is known, and from a rehearsal's."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.proof.children import function
from tools.proof.full_section import MARKS, NEEDED, rehearsal, section
from tools.proof.full_steps import FullSettings, full_steps, seconds_of
from tools.proof.report import put_into
from tools.proof.results import Result

ROOT = Path(__file__).resolve().parents[2]
GPU = {"name": "NVIDIA H200", "compute_capability": "9.0", "driver": "580.159"}
COMMAND = "python tools/full_size.py --out DIR"


def meaning(median: float, psnr: float) -> dict[str, Any]:
    """Every picture alike in shape; the albedo has no worst limit, and its worst picture was not finite."""
    allowed = {"allowed_median": 0.35, "allowed_p95": 0.7, "allowed_worst": 1.4}
    shape = {"median": median, "p95": 2 * median, "worst": 4 * median, **allowed, "worst_image": "0007.png"}
    albedo = {"median": psnr, "p95": psnr - 6, "worst": None, "worst_image": "0008.png"}
    return {"shape_mean": shape, "albedo_psnr": {**albedo, **dict.fromkeys(allowed, None)}}


def plan(**facts: Any) -> dict[str, Any]:
    usual = {"passed": True, "engine_ran": True, "candidate": "TensorRT 8.6.0, the plan", "weights": "learned"}
    return {**usual, "pictures": 256, "batches": ["1 at 224x224 (profile 0)"], "failures": [], "notes": [], **facts}


def measured() -> dict[str, Result]:
    """As they would come from a GPU."""
    columns = {
        "own error": {"shape_mean": [1.7, 2.4, 3.1], "albedo_psnr": [30.6, 26.6, 22.4]},
        "second photo": {"shape_mean": [0.4, 0.7, 1.1], "albedo_psnr": [38.5, 31.7, 27.4]},
        "other photo": {"shape_mean": [1.0, 1.8, 2.9]},
    }
    built = {
        "command": "face3d-trt build",
        "seconds": 31.0,
        "cached": True,
        "plan_bytes": 25e6,
        "backbone": {"int8": 53},
    }
    figures: dict[str, dict[str, Any]] = {
        "machine_engine": {"flavour": "tensorrt", "version": "8.6.0"},
        "train": {
            "command": "face3d-trt standin model --size full --train 10m",
            "seconds_taught": 600.0,
            "seconds_in_all": 700.0,
            "on_gpu": True,
            "gpu_bytes": 60e9,
            "pictures": 1_400_000,
            "loss": 0.2,
            "quality": {
                "explained": {"angle": 0.996},
                "vertex_mm": 4.38,
                "shape_mm": 1.78,
                "mean_face_mm": 4.42,
                "pictures": 1024,
            },
        },
        "own": {"pictures": 256, "head_mm": [152.0, 204.0, 109.0], "columns": columns},
        "typed_int8": {"command": "face3d-trt build --int8"},
        "build_fp16": {**built, "cached": False, "backbone": {"fp16": 53}},
        "build_int8": built,
        "compare": {
            "command": "face3d-trt compare",
            "plans": {"fp16": plan(meaning=meaning(0.0034, 79.4)), "int8": plan(meaning=meaning(0.153, 46.2))},
        },
    }
    return {
        name: Result(name, found, 1.0, "2026-12-01T09:00:00+00:00", versions={"torch": "2.11.0"}, gpu=GPU)
        for name, found in figures.items()
    }


def changed(step: str, **figures: Any) -> dict[str, Result]:
    results = measured()
    results[step] = replace(results[step], figures={**results[step].figures, **figures})
    return results


def rows(text: str) -> dict[str, list[str]]:
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return {line[0]: line[1:] for line in lines}


def test_the_engines_stand_beside_the_networks_own_error():
    found = rows(section(measured(), COMMAND))["shape alone, mean (mm)"]
    assert found[0] == "1.700 / 2.400 / 3.100"
    assert found[3:] == [
        "0.003 / 0.007 / 0.014",
        "0.35 / 0.7 / 1.4",
        "0.153 / 0.306 / 0.612",
        "0.35 / 0.7 / 1.4",
    ]


def test_a_share_of_the_own_error_is_the_quotient_of_the_medians():
    text = section(measured(), COMMAND)
    assert "INT8's error is 9 % in shape" in text  # 0.153 mm of 1.7 mm
    assert "FP16's error is 0.2 % in shape" in text


def test_what_was_not_finite_or_not_limited_is_shown_as_such():
    found = rows(section(measured(), COMMAND))["albedo, PSNR (dB)"]
    assert found[5:] == ["46.2 / 40.2 / -", "- / - / -"]


def test_a_gate_that_fails_says_why():
    failures = [f"row {number}" for number in range(6)]
    plans = {
        "fp16": plan(meaning=meaning(0.0034, 79.4)),
        "int8": plan(passed=False, failures=failures, meaning=meaning(1.53, 20.0)),
    }
    text = section(changed("compare", plans=plans), COMMAND)
    assert (
        "**INT8 fails the gate** on 256 pictures (TensorRT 8.6.0, the plan): row 0; row 1; row 2; row 3; and 2 more."
        in text
    )
    assert "**FP16 passes the gate**" in text


def test_figures_of_the_full_size_on_a_gpu_are_no_rehearsal():
    assert rehearsal(measured()) == []
    assert "rehearsal" not in section(measured(), COMMAND)


@pytest.mark.parametrize(
    ("step", "figures", "reason"),
    [
        ("train", {"command": "face3d-trt standin model --size small --train 10m"}, "not of the full size"),
        ("train", {"seconds_taught": 20.0}, "taught for 20 s"),
        ("train", {"on_gpu": False}, "not taught on a GPU"),
        (
            "compare",
            {"plans": {"fp16": plan(meaning={}), "int8": plan(meaning={}, engine_ran=False)}},
            "int8 engine was not run",
        ),
    ],
)
def test_a_rehearsal_is_told_and_says_so_on_top(step, figures, reason):
    results = changed(step, **figures)
    assert [said for said in rehearsal(results) if reason in said]
    assert section(results, COMMAND).startswith("**A rehearsal: ")


@pytest.mark.parametrize("step", NEEDED)
def test_a_step_that_is_not_there_is_named(step):
    results = measured()
    del results[step]
    assert f"the step {step} has no result" in rehearsal(results)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "full_size.py"), *words], capture_output=True, text=True, check=False
    )


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "accuracy.md"
    path.write_text(f"before\n\n{MARKS[0]}\n\nNot measured yet.\n\n{MARKS[1]}\n\nafter\n", encoding="utf-8")
    return path


def test_the_script_puts_the_section_between_the_marks(tmp_path, document):
    for result in measured().values():
        result.write(tmp_path)
    done = run("--out", str(tmp_path), "--report", "--doc", str(document))
    assert done.returncode == 0, done.stderr
    text = document.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "Not measured yet" not in text
    assert "--doc accuracy.md" in text
    assert str(tmp_path) not in text


def test_the_script_refuses_to_put_a_rehearsal_into_a_document(tmp_path, document):
    before = document.read_text(encoding="utf-8")
    for result in changed("train", on_gpu=False).values():
        result.write(tmp_path)
    done = run("--out", str(tmp_path), "--report", "--doc", str(document))
    assert done.returncode == 1
    assert "it was not taught on a GPU" in done.stderr
    assert document.read_text(encoding="utf-8") == before


def test_results_of_another_run_are_not_mixed_in(tmp_path):
    assert run("--out", str(tmp_path), "--report").returncode == 0
    done = run("--out", str(tmp_path), "--report", "--train", "20s")
    assert done.returncode == 2
    assert "name another --out" in done.stderr


def test_every_step_can_be_called_and_needs_only_what_comes_before():
    before: set[str] = set()
    for step in full_steps(FullSettings(Path("out"), Path("graphs"))):
        assert callable(function(step.home))
        assert before.issuperset(step.needs)
        before.add(step.name)


def test_training_may_take_the_time_it_is_told_and_more():
    (step,) = [each for each in full_steps(FullSettings(Path("o"), Path("g"), train="1h")) if each.name == "train"]
    assert step.timeout_s > seconds_of("1h") == 3600


def test_a_time_without_a_unit_is_refused():
    with pytest.raises(ValueError, match="90s"):
        seconds_of("90")


def test_marks_that_are_there_are_written_between_and_no_others(document):
    put_into(document, "the figures", MARKS)
    assert document.read_text(encoding="utf-8") == f"before\n\n{MARKS[0]}\n\nthe figures\n{MARKS[1]}\n\nafter\n"
