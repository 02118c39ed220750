"""`bench compare`: what fails, what is refused, what is only told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bench.runs import CPU, GPU, row, run, skipped

from face3d_trt.bench.records import BenchFile, Memory, read_run
from face3d_trt.bench.regress import compare_runs
from face3d_trt.cli.bench_compare import command
from face3d_trt.errors import UsageError

OLD = run([row("torch-fp32", 8, 10.0), row("trt-int8", 8, 1.0)])


def again(*rows, **other) -> BenchFile:  # type: ignore[no-untyped-def]
    return run(rows, **{"created": "2026-12-01T10:00:00Z", **other})


def test_a_ratio_that_worsened_by_more_than_the_limit_fails() -> None:
    found = compare_runs(OLD, again(row("torch-fp32", 8, 10.0), row("trt-int8", 8, 1.06)))
    assert not found.passed
    assert {change.measure for change in found.worsened} == {"time", "p50"}
    assert found.worsened[0].worse == pytest.approx(0.06)
    assert compare_runs(OLD, again(row("torch-fp32", 8, 10.0), row("trt-int8", 8, 1.06)), limit=0.07).passed


def test_a_machine_under_load_cancels_but_hides_nothing_else() -> None:
    assert compare_runs(OLD, again(row("torch-fp32", 8, 20.0), row("trt-int8", 8, 2.0))).passed
    assert not compare_runs(OLD, again(row("torch-fp32", 8, 5.0), row("trt-int8", 8, 1.0))).passed


def test_faster_is_never_worse() -> None:
    assert compare_runs(OLD, again(row("torch-fp32", 8, 10.0), row("trt-int8", 8, 0.5))).passed


def test_memory_counts_too() -> None:
    more = row("trt-int8", 8, 1.0, memory=Memory(process=900_000_000))
    found = compare_runs(OLD, again(row("torch-fp32", 8, 10.0), more))
    assert [change.measure for change in found.worsened] == ["GPU memory"]


def test_without_pytorch_the_first_common_engine_is_the_baseline() -> None:
    old = run([row("trt-fp16", 8, 2.0), row("trt-int8", 8, 1.0)])
    found = compare_runs(old, again(row("trt-fp16", 8, 2.0), row("trt-int8", 8, 1.2)))
    assert {(change.row.plan, change.base.plan) for change in found.worsened} == {("m.int8.plan", "m.fp16.plan")}


def test_modes_and_batches_have_baselines_of_their_own() -> None:
    host = [row("torch-fp32", 8, 12.0, mode="host"), row("trt-int8", 8, 2.0, mode="host")]
    found = compare_runs(run([*OLD.rows, *host]), again(*OLD.rows, *host))
    ratios = {change.row.mode: change.old for change in found.changes if change.measure == "time"}
    assert ratios == pytest.approx({"engine": 0.1, "host": 1 / 6})


def test_rows_that_vanished_are_listed_and_lost_ones_fail() -> None:
    wide = run([*OLD.rows, row("trt-fp16", 8, 2.0)])
    absent = compare_runs(wide, again(*OLD.rows))
    assert [each.plan for each in absent.absent] == ["m.fp16.plan"]
    assert absent.passed
    lost = compare_runs(wide, again(*OLD.rows, skipped("trt-fp16", 8, "out of memory")))
    assert [why for _, why in lost.lost] == ["out of memory"]
    assert not lost.passed
    assert [each.plan for each in compare_runs(OLD, again(*wide.rows)).added] == ["m.fp16.plan"]


@pytest.mark.parametrize(
    ("new", "word"),
    [
        (run(OLD.rows, CPU), "machines"),
        (run(OLD.rows, GPU.model_copy(update={"gpu": "Another GPU"})), "machines"),
        (run(OLD.rows, model_sha256="cd" * 32), "models"),
        (run(OLD.rows, model_sha256=None, model="another"), "models"),
        (run([each.model_copy(update={"height": 448, "width": 448}) for each in OLD.rows]), "sizes"),
        (run([each.model_copy(update={"outputs": "mesh"}) for each in OLD.rows]), "outputs"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(new: BenchFile, word: str) -> None:
    with pytest.raises(UsageError, match=f"different {word}"):
        compare_runs(OLD, new)


def test_another_driver_and_another_torch_are_told() -> None:
    other = GPU.model_copy(update={"driver": "9.9", "packages": {"python": "3.12.3", "torch": "2.13.0"}})
    found = compare_runs(OLD, again(*OLD.rows, machine=other))
    assert found.notes == ("driver 1.2.3 and 9.9", "torch 2.11.0 and 2.13.0")


def test_nothing_to_compare_does_not_pass() -> None:
    found = compare_runs(run([row("torch-fp32", 8)]), again(row("torch-fp32", 8)))
    assert not found.passed
    assert [each.backend for each in found.alone] == ["torch-fp32"]


def test_the_command_exits_with_1_and_names_the_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    old, new, bad = (tmp_path / name for name in ("old.json", "new.json", "bad.json"))
    OLD.write(old)
    OLD.write(new)
    again(row("torch-fp32", 8, 10.0), row("trt-int8", 8, 1.5)).write(bad)
    command(old, new)
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASSED: none of 3 ratios")
    with pytest.raises(typer.Exit) as exit:
        command(old, bad, "10%")
    assert exit.value.exit_code == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("FAILED: trt m.int8.plan, batch 8, engine only: ")
    assert "50 % worse against torch-fp32, batch 8" in last


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema_version": 2}'])
def test_files_of_another_kind_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"a\.json is not a benchmark's file"):
        read_run(path)
    with pytest.raises(UsageError, match="No such file"):
        read_run(tmp_path / "none.json")
