"""Steps as real processes: what fails, hangs, is done already or does not fit."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tools.proof.results import Result, Settings, read
from tools.proof.runner import Launcher, Outcome, run_steps
from tools.proof.steps import STEPS, Step, choose

# What gpu_proof.py does as a step, by the name of the step.
SCRIPT = """
import json, os, subprocess, sys, time
name, out = sys.argv[sys.argv.index("--run-step") + 1], sys.argv[sys.argv.index("--out") + 1]
open(f"{out}/calls", "a").write(name + "\\n")
if name == "fails":
    sys.exit("the reason stands here")
if name == "hangs":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open(f"{out}/child", "w").write(str(child.pid))
    time.sleep(60)
if name != "silent":
    files = ["made.plan"] if name == "builds" else []
    for file in files:
        open(f"{out}/{file}", "w").close()
    scale = float(sys.argv[sys.argv.index("--scale") + 1])
    skipped = "only one GPU" if name == "skips" else None
    result = {"schema": 1, "step": name, "figures": {"who": os.environ.get("WHO", "")}, "seconds": 1.0, "when": "now",
              "command": "", "versions": {}, "gpu": None, "scale": scale, "skipped": skipped, "files": files}
    json.dump(result, open(f"{out}/{name}.json", "w"))
"""


def step(name: str, *needs: str, expected_s: float = 1, timeout_s: float = 60) -> Step:
    return Step(name, "engine", "nowhere:at_all", expected_s, timeout_s, needs)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.settings = Settings(folder, folder / "graphs")
        self.script = folder / "script.py"
        self.script.write_text(SCRIPT)
        self.said: list[str] = []
        self.python = "python3"

    def run(self, *steps: Step, budget_s: float | None = None, **settings: float) -> dict[str, Outcome]:
        told = Settings(self.settings.out, self.settings.graphs, **settings)  # type: ignore[arg-type]
        launch = Launcher(self.script, told, {"engine": self.python, "torch": self.python})
        found = run_steps(steps, told, launch, budget_s=budget_s, say=self.said.append)
        return {outcome.step: outcome for outcome in found}

    @property
    def calls(self) -> list[str]:
        path = self.settings.out / "calls"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_step_that_fails_is_told_with_its_reason_and_the_others_go_on(bench: Bench) -> None:
    found = bench.run(step("one"), step("fails"), step("after", "fails"), step("two"))
    assert {name: each.state for name, each in found.items()} == {
        "one": "done",
        "fails": "failed",
        "after": "blocked",
        "two": "done",
    }
    assert "the reason stands here" in found["fails"].text
    assert "--steps fails,after" in found["after"].text
    assert [each.bad for each in found.values()] == [False, True, True, False]
    assert len(bench.said) == 4


def test_a_step_without_a_result_has_failed_whatever_its_exit_code(bench: Bench) -> None:
    assert bench.run(step("silent"))["silent"].state == "failed"


def test_what_is_done_is_not_measured_again(bench: Bench) -> None:
    bench.run(step("one"), step("skips"))
    assert {o.state for o in bench.run(step("one"), step("skips")).values()} == {"reused"}
    assert bench.calls == ["one", "skips"]


def test_a_rehearsal_does_not_stand_in_for_the_measurement(bench: Bench) -> None:
    bench.run(step("one"), scale=0.01)
    assert bench.run(step("one"))["one"].state == "done"
    assert bench.calls == ["one", "one"]


def test_a_step_whose_files_are_gone_runs_again(bench: Bench) -> None:
    bench.run(step("builds"))
    assert bench.run(step("builds"))["builds"].state == "reused"
    (bench.settings.out / "made.plan").unlink()
    assert bench.run(step("uses", "builds"))["uses"].state == "blocked"
    assert bench.run(step("builds"), step("uses", "builds"))["uses"].state == "done"


def test_a_step_that_hangs_is_ended_with_all_that_it_started(bench: Bench) -> None:
    begun = time.monotonic()
    found = bench.run(step("hangs", timeout_s=2))
    assert found["hangs"].text.startswith("ran out of time")
    assert time.monotonic() - begun < 30
    child = int((bench.settings.out / "child").read_text())
    for _ in range(100):
        if not _runs(child):
            break
        time.sleep(0.1)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_what_does_not_fit_into_the_time_left_is_left_for_later(bench: Bench) -> None:
    found = bench.run(step("long", expected_s=500), step("short"), budget_s=100)
    assert [each.state for each in found.values()] == ["later", "done"]
    assert not found["long"].bad
    assert bench.run(step("long", expected_s=500))["long"].state == "done"


def test_a_half_written_or_foreign_result_counts_as_none(bench: Bench) -> None:
    (bench.settings.out / "one.json").write_text('{"schema": 1, "step": "one", "fig')
    assert read("one", bench.settings.out) is None
    (bench.settings.out / "one.json").write_text('{"schema": 99}')
    assert bench.run(step("one"))["one"].state == "done"


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = Result("one", {"a": [1.5, None]}, 2.0, "now", "cmd", {"python": "3"}, {"name": "H"}, 1.0, None, ("x",))
    result.write(tmp_path)
    assert read("one", tmp_path) == result
    assert os.listdir(tmp_path) == ["one.json"]


def test_an_interpreter_may_be_a_command_with_words_or_an_exported_function(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.python = "env WHO=words python3"
    bench.run(step("one"))
    monkeypatch.setenv("BASH_FUNC_our_python%%", '() { WHO=function python3 "$@"; }')  # what `export -f` does
    bench.python = "our_python"
    bench.run(step("two"))
    found = [read(name, bench.settings.out) for name in ("one", "two")]
    assert [result and result.figures["who"] for result in found] == ["words", "function"]


def test_steps_need_only_what_comes_before_them() -> None:
    seen: set[str] = set()
    for each in STEPS:
        assert set(each.needs) <= seen, each.name
        assert each.timeout_s > each.expected_s
        seen.add(each.name)
    assert len(seen) == len(STEPS)


def test_steps_are_chosen_by_name_or_by_its_beginning() -> None:
    names = [each.name for each in choose(["build", "memory"])]
    assert "memory" in names
    assert "torch_memory" not in names
    assert [name for name in names if name != "memory"] == [n.name for n in STEPS if n.name.startswith("build_")]
    assert choose([]) == STEPS
    with pytest.raises(ValueError, match="no step 'sok'"):
        choose(["soak", "sok"])
