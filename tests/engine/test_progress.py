"""Phases and messages: many calls from TensorRT, little on the screen."""

from __future__ import annotations

import threading

from tests.tiny import Recorder

from face3d_trt.engine.messages import Messages
from face3d_trt.engine.phases import Phases


def test_nested_phases_make_one_bar() -> None:
    report = Recorder()
    phases = Phases(report, "building")
    phases.start("engine", None, 2)
    phases.start("graph", "engine", 4)
    phases.step("graph", 0)  # a quarter of the first half
    assert report.steps[-1] == ("building", 125, 1000)
    for step in (1, 2, 3):
        phases.step("graph", step)
    phases.finish("graph")
    phases.step("engine", 0)
    assert report.steps[-1] == ("building", 500, 1000)
    phases.finish("engine")
    assert report.steps[-1] == ("building", 1000, 1000)
    shown = [done for _, done, _ in report.steps]
    assert shown == sorted(set(shown))


def test_a_step_of_an_unknown_phase_is_no_matter() -> None:
    report = Recorder()
    Phases(report, "building").step("late", 3)
    assert report.steps == []


def test_a_warning_said_by_many_threads_is_shown_once_with_its_count() -> None:
    messages = Messages()
    threads = [
        threading.Thread(target=lambda: [messages.add("warning", "scales to  fp32.\n") for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages.add("warning", "another")
    messages.add("error", "refused")
    report = Recorder()
    messages.warn(report, "TensorRT")
    assert report.warnings == ["TensorRT: scales to fp32. (said 200 times)", "TensorRT: another"]
    messages.warn(report, "TensorRT")
    assert len(report.warnings) == 2
    assert messages.errors() == ["refused"]
