"""Figures of a run as pipeline_bench.py takes them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from face3d_trt.reconstruct.stats import Status

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import pipeline_bench
import pipeline_table

EMPTY = Status({}, 100, 0.0, 0.0, 0.0, {}, {}, 1, {}, "", 1)


def statuses(rate: float) -> list[Status]:
    """2 s of starting, 10 s at `rate`, 3 s in which the last picture is waited for; a GPU busy from 3 s to 12 s."""
    found = []
    for tick in range(150):
        seconds = tick / 10
        done = round(min(max(seconds - 2, 0), 10) * rate)
        busy = 0.95 if 3 <= seconds <= 12 else 0.0
        found.append(replace(EMPTY, counts={"done": done}, seconds=seconds, gpus={0: {"utilization": busy}}))
    return found


def test_the_steady_rate_leaves_out_beginning_and_end():
    assert pipeline_bench.steady(statuses(50.0)) == pytest.approx(50.0, rel=0.02)
    assert pipeline_bench.steady([]) is None
    assert pipeline_bench.steady(statuses(50.0)[:25]) is None  # half a second says nothing


def test_a_gpu_is_busy_while_the_run_is_under_way():
    assert pipeline_bench.gpu_busy(statuses(50.0))["0"] == pytest.approx(0.95, abs=0.02)
    assert pipeline_bench.gpu_busy([]) == {}


def test_results_of_two_runs_are_compared_as_far_as_both_go(tmp_path):
    for name, count in (("one", 2), ("two", 3)):
        for index in range(count):
            folder = tmp_path / name / f"{index}.npy"
            folder.mkdir(parents=True)
            (folder / "coeffs.npy").write_bytes(b"x" if index else name.encode())
        (tmp_path / name / "results.jsonl").write_text("run\n" + "".join(f"{index}\n" for index in range(count)))
    found = pipeline_bench.same(tmp_path / "one", tmp_path / "two")
    assert found == {"files": 2, "equal": 1, "same_order": True}


def test_the_table_stands_between_its_marks_and_nothing_else_changes(tmp_path):
    document = tmp_path / "a.md"
    document.write_text(f"before\n{pipeline_table.BEGIN}\nold\n{pipeline_table.END}\nafter\n")
    results = {"infer": {"images_per_s": 71234.5, "processes": 1, "ms_each": 0.014}, "write": {"problem": "full"}}
    pipeline_table.put_into(document, pipeline_table.table(results))
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| infer | 71,234 | 1 |" in text
    assert "old" not in text
    assert "write" not in text.partition(pipeline_table.BEGIN)[2].partition("-->")[2].partition("<!--")[0]
