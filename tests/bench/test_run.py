"""A run from the command line's options to the file, with processes that crash, hang and run out of memory."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.bench import doubles
from tests.tiny import write_tiny

from face3d_trt.bench.backend import Case, Source
from face3d_trt.bench.choose import Planned
from face3d_trt.bench.error import Truth
from face3d_trt.bench.machine import others
from face3d_trt.bench.measure import Pace
from face3d_trt.bench.options import BenchOptions
from face3d_trt.bench.records import BenchFile
from face3d_trt.bench.run import _share_out, run_bench
from face3d_trt.errors import MissingError, UsageError
from face3d_trt.monitor.tally import Reading

QUICK = Pace(0.2)
SIDE = 64


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.onnx")


class Heard:
    """A reporter that keeps what it hears."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []

    def stage(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def track(self, items, text, total=None):
        return iter(items)

    def progress(self, text: str, done: int, total: int) -> None:
        pass


@pytest.fixture
def options(onnx: Path, tmp_path: Path) -> BenchOptions:
    return BenchOptions(
        device="cpu", onnx=onnx, json=tmp_path / "out.json", pace=QUICK, ceilings=False, height=SIDE, width=SIDE
    )


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch):
    """Let the run measure doubles, and know what is right."""

    def plan(*batches: int, name: str = "torch-compile", named: bool = True) -> None:
        crops = np.random.default_rng(0).integers(0, 256, (8, SIDE, SIDE, 3), np.uint8)
        pictures = crops.transpose(0, 3, 1, 2).astype(np.float32) / 255
        truth = Truth(crops, doubles.coeffs_of(pictures), "by hand")

        def choose(options, subject, device, folder, report):
            cases = tuple(Case(batch, SIDE, SIDE) for batch in batches)
            source = Source(folder=folder, compile_limit_s=options.compile_limit_s)
            return [Planned(name, source, cases, named, "tests.bench.doubles")]

        monkeypatch.setattr("face3d_trt.bench.run.choose", choose)
        monkeypatch.setattr("face3d_trt.bench.run.find_truth", lambda *_: truth)

    return plan


def reasons(file: BenchFile) -> dict[int, str | None]:
    return {row.batch: row.skipped for row in file.rows}


def test_what_goes_wrong_costs_its_own_row(options: BenchOptions, planned) -> None:
    planned(doubles.FINE, doubles.WRONG, doubles.CRASHES, doubles.NOT_FINITE, doubles.SKIPS, 32, 64, 128)
    file = run_bench(options)
    why = reasons(file)
    assert why[doubles.FINE] is why[doubles.WRONG] is why[32] is None
    assert "SIGSEGV" in str(why[doubles.CRASHES])
    assert "a driver's last words" in str(why[doubles.CRASHES])
    assert why[doubles.NOT_FINITE] == "its coefficients are not finite"
    assert why[doubles.SKIPS] == "it does not like six"
    assert why[64] == "out of memory"
    assert why[128] == "a smaller batch was out of memory already"
    rows = {row.batch: row for row in file.rows}
    fine = rows[doubles.FINE]
    assert fine.error == 0.0
    assert fine.rate is not None
    assert fine.latency is not None
    assert (fine.rate.ms, fine.rate.images_per_second, fine.rate.settled) == (2.0, 500.0, True)
    assert 2 <= fine.latency.p50 <= fine.latency.p99 <= fine.latency.max
    assert (fine.memory.allocator, fine.memory.process) == (7, None)
    assert (rows[doubles.WRONG].error or 0) > 1  # twice the coefficients, whose offsets are large against their spread
    assert rows[32].rate is not None
    assert rows[32].rate.images_per_second == 16_000
    assert BenchFile.model_validate_json(options.json.read_bytes()) == file  # type: ignore[union-attr]


def test_what_hangs_is_ended_with_all_that_it_started(
    options: BenchOptions, planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOUBLES_MARK", str(os.getpid()))
    planned(doubles.HANGS, doubles.FINE)
    why = reasons(run_bench(replace(options, compile_limit_s=3)))
    assert why == {doubles.HANGS: "compilation took more than 3 s", doubles.FINE: None}
    mark = Path(tempfile.gettempdir()) / f"worker-{os.getpid()}"
    worker = int(mark.read_text())
    mark.unlink()
    deadline = time.monotonic() + 10
    while running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(worker)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_backend_that_cannot_be_had_is_an_error_only_where_it_was_asked_for(options: BenchOptions, planned) -> None:
    planned(1, name="torch-half", named=True)
    with pytest.raises(MissingError, match="needs a package") as raised:
        run_bench(options)
    assert raised.value.run == "pip install it"
    planned(1, name="torch-half", named=False)
    heard = Heard()
    assert run_bench(options, heard).rows == ()
    assert any("torch-half is left out: torch-half needs a package" in text for text in heard.warned)


def test_a_backend_that_crashes_while_it_starts_has_rows_that_say_so(options: BenchOptions, planned) -> None:
    planned(1, 2, name="torch-graph")
    assert set(reasons(run_bench(options))) == {1, 2}
    assert all("SIGABRT" in str(row.skipped) for row in run_bench(options).rows)


def test_a_run_is_taken_up_where_it_was(options: BenchOptions, planned) -> None:
    planned(doubles.FINE, doubles.SKIPS)
    first = run_bench(options)
    planned(doubles.FINE, doubles.SKIPS, 32)
    heard = Heard()
    second = run_bench(replace(options, resume=True), heard)
    assert [row.batch for row in second.rows] == [doubles.FINE, doubles.SKIPS, 32]  # what was skipped is tried again
    assert second.rows[0] == first.rows[0]
    assert second.seconds >= first.seconds
    assert any("1 rows are in the file already" in text for text in heard.said)


def test_a_file_of_another_machine_is_not_taken_up(options: BenchOptions, planned) -> None:
    planned(doubles.FINE)
    file = run_bench(options)
    assert options.json is not None
    other = file.machine.model_copy(update={"gpu": "NVIDIA H200"})
    file.model_copy(update={"machine": other}).write(options.json)
    with pytest.raises(UsageError, match="is of another GPU"):
        run_bench(replace(options, resume=True))


def test_a_budget_that_is_spent_begins_nothing(options: BenchOptions, planned) -> None:
    planned(doubles.FINE)
    heard = Heard()
    assert run_bench(replace(options, budget_s=0.01), heard).rows == ()
    assert any("--budget" in text for text in heard.warned)


class Clock:
    """Time that passes where work is done."""

    now = 0.0


class Turns:
    """A measurement that takes a second for a case, and knows what it did in each turn."""

    def __init__(self, clock: Clock, cases: int) -> None:
        self._clock = clock
        self.left = list(range(cases))
        self.turns: list[int] = []

    def run(self, share: float | None) -> None:
        self.turns.append(0)
        while self.left and (share is None or not self.turns[-1] or self._clock.now < share):
            self._clock.now += 1
            self.left.pop()
            self.turns[-1] += 1


def test_a_budget_is_shared_and_what_one_leaves_another_has(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    many, few, none = Turns(clock, 100), Turns(clock, 2), Turns(clock, 0)
    _share_out([many, few, none], 20)  # type: ignore[list-item]
    assert many.turns == [10, 8]  # half of the time, and what the other one left
    assert few.turns == [2]
    assert none.turns == []


def test_without_a_budget_each_has_one_turn() -> None:
    both = [Turns(Clock(), 2), Turns(Clock(), 1)]
    _share_out(both, None)  # type: ignore[arg-type]
    assert [each.turns for each in both] == [[2], [1]]


def test_a_share_that_is_over_ends_a_turn_after_one_case() -> None:
    from face3d_trt.bench.child import Job, _work

    said: list[object] = []
    cases = (Case(1, SIDE, SIDE), Case(2, SIDE, SIDE))
    job = Job(
        "torch-compile", Source(), cases, QUICK, None, (), "", share=time.monotonic(), module="tests.bench.doubles"
    )
    _work(job, said.append)
    gc.unfreeze()
    assert [type(each).__name__ for each in said] == ["Started", "Begun", "Begun", "Measured", "Done"]


def test_onnx_runtime_is_measured_against_itself_without_an_error(onnx: Path, options: BenchOptions) -> None:
    file = run_bench(replace(options, backends=("ort-fp32",), batches=(1, 3)))
    assert [(row.batch, row.skipped) for row in file.rows] == [(1, None), (3, None)]
    assert all(row.error is not None and row.error < 1e-3 for row in file.rows)
    assert all(row.plan == onnx.name and row.arithmetic == "fp32" for row in file.rows)
    assert all((row.memory.host or 0) > 1e7 for row in file.rows)
    assert file.model_sha256 is not None


def test_onnx_runtimes_own_int8_is_near_float32_and_not_it(options: BenchOptions) -> None:
    (row,) = run_bench(replace(options, backends=("ort-int8",), batches=(2,))).rows
    assert row.skipped is None
    assert row.arithmetic == "int8"
    assert row.error is not None
    assert 1e-4 < row.error < 0.3


def test_ctrl_c_leaves_a_whole_file_and_no_process(onnx: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    words = ["bench", "--device", "cpu", "--backend", "ort-fp32", "--onnx", str(onnx), "--size", str(SIDE)]
    words += ["--batches", "1,2,3,4,5,6,7,8", "--seconds", "1.5", "--no-ceilings", "--json", str(file)]
    command = [sys.executable, "-m", "face3d_trt", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (file.is_file() and BenchFile.model_validate_json(file.read_bytes()).rows):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        started = children(process.pid)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert "--resume measures the rest" in said
    assert 1 <= len(BenchFile.model_validate_json(file.read_bytes()).rows) < 8
    assert started
    assert not [pid for pid in started if running(pid)]
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(("load", "said"), [(0.1, False), (500.0, True)])
def test_a_busy_machine_is_said(load: float, said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    found = others(None)
    assert (found is not None) is said
    assert found is None or "500.0 processes" in found


class Shared:
    """NVML of a GPU on which another process trains: no such machine is at hand."""

    def __init__(self, share: float | None) -> None:
        self._share = share

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> Reading:
        return Reading(utilization=self._share)


@pytest.mark.parametrize(("share", "said"), [(None, False), (0.0, False), (0.87, True)])
def test_a_gpu_that_others_use_is_said(share: float | None, said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("face3d_trt.bench.machine.NvmlGpu", lambda index: Shared(share))
    found = others(3)
    assert (found is not None) is said
    assert found is None or ("GPU 3" in found and "87%" in found)
