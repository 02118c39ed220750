"""Phases and messages: many calls from TensorRT, little on the screen."""

from __future__ import annotations

import threading
import time

from tests.tiny import Recorder

from face3d_trt.engine.messages import Messages
from face3d_trt.engine.phases import Phases, heartbeat


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


def test_a_build_that_does_not_say_how_far_it_is_shows_that_it_lives() -> None:
    report = Recorder()
    with heartbeat(report, "building", beat_s=0.01):
        while not report.stages:  # a line for a log, after a row of beats for a terminal
            time.sleep(0.01)
    beats = len(report.steps)
    assert report.stages[0].startswith("still building, ")
    assert beats >= 14
    assert all(text.startswith("building, ") and done < total for text, done, total in report.steps)
    time.sleep(0.05)
    assert len(report.steps) == beats


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


def test_what_tensorrt_8_always_says_is_left_out_and_overflow_is_not() -> None:
    messages = Messages()
    for text in (
        (
            "Your ONNX model has been generated with INT64 weights, while TensorRT does not natively support INT64. "
            "Attempting to cast down to INT32."
        ),
        "TensorRT encountered issues when converting weights between types and that could affect accuracy.",
        (
            "If this is not the desired behavior, please modify the weights or retrain with regularization to adjust "
            "the magnitude of the weights."
        ),
        "Check verbose logs for the list of affected weights.",
        "- 54 weights are affected by this issue: Detected subnormal FP16 values.",
        (
            "- 1 weights are affected by this issue: Detected finite FP32 values which would overflow in FP16 and "
            "converted them to the closest finite FP16 value."
        ),
    ):
        messages.add("warning", text)
    report = Recorder()
    messages.warn(report, "TensorRT 8.6.0")
    assert len(report.warnings) == 1
    assert "overflow" in report.warnings[0]
