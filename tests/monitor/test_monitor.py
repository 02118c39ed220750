"""`face3d-trt monitor`: what it shows, on a machine with a GPU and without, of this machine and of a process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from tests.monitor.test_metrics import busy  # skips this file too where there is no prometheus-client
from typer.testing import CliRunner

from face3d_trt.cli import app
from face3d_trt.errors import MissingError, UsageError
from face3d_trt.monitor.gpus import Gpus
from face3d_trt.monitor.metrics import Metrics
from face3d_trt.monitor.state import LocalSource, UrlSource, parse
from face3d_trt.monitor.watch import WatchOptions, opened, states

SOME_GPU = pytest.mark.parametrize("some_gpu", ["double", pytest.param("real", marks=pytest.mark.gpu)], indirect=True)


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["monitor", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def process() -> Iterator[tuple[Metrics, str]]:
    """A pipeline without a GPU, and its endpoint."""
    metrics = busy(())
    with metrics.endpoint(0) as url:
        yield metrics, url


@SOME_GPU
@pytest.mark.usefixtures("some_gpu")
def test_one_line_a_gpu() -> None:
    shown = run("--once")
    assert re.search(r"^ *0 +NVIDIA .*\d+\.\d / \d+ .*\d", shown, re.MULTILINE)


@SOME_GPU
@pytest.mark.usefixtures("some_gpu")
def test_json_has_a_line_for_each_look() -> None:
    (line,) = run("--once", "--json", "--devices", "0").splitlines()
    state = json.loads(line)
    assert abs(datetime.fromisoformat(state["time"]).timestamp() - time.time()) < 60
    (gpu,) = state["gpus"]
    assert gpu["index"] == 0
    assert 0 < gpu["memory_used"] <= gpu["memory_total"]
    assert state["progress"] is None


def test_a_figure_that_is_not_told_is_a_question_mark(fake) -> None:
    fake(nvmlDeviceGetPowerUsage=None)
    assert re.search(r"93% +20\.0 / 141 +71 +\? +1980 +power cap, thermal", run("--once"))


def test_a_process_tells_of_its_queues_and_images(process) -> None:
    metrics, url = process
    shown = run("--once", "--url", url.removesuffix("/metrics"))
    assert re.search(r"decode +7 / 64 +0 *$", shown, re.MULTILINE)
    assert re.search(r"infer +3 +2 +5\.00 *$", shown, re.MULTILINE)
    assert re.search(r"written +90 *$", shown, re.MULTILINE)
    assert re.search(r"GPU 0 held to batches of +32", shown)
    assert UrlSource(url).read().progress == metrics.progress()


@SOME_GPU
@pytest.mark.usefixtures("some_gpu")
def test_the_gpus_of_a_process_are_the_same_over_http() -> None:
    """What goes out as bytes and hertz comes back as it was."""
    with Metrics().endpoint(0) as url, Gpus() as gpus:
        (first, *_), (here, *_) = UrlSource(url).read().gpus, LocalSource(gpus).read().gpus
        assert UrlSource(url, devices=()).read().gpus == ()
    assert (first.index, first.name) == (here.index, here.name)
    assert first.reading.memory_total == here.reading.memory_total
    assert first.reading.temperature_c == pytest.approx(here.reading.temperature_c, abs=5)
    assert first.reading.memory_mhz == pytest.approx(here.reading.memory_mhz, rel=0.5)


def test_rates_are_those_between_two_looks(process) -> None:
    from rich.console import Console

    from face3d_trt.monitor.show import tables
    from face3d_trt.monitor.state import State

    metrics, _ = process
    before = State(100.0, (), metrics.progress())
    metrics.image("written", 30)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(tables(State(102.0, (), metrics.progress()), before))
    assert re.search(r"written +120 +15\.0", captured.get())


def test_looks_come_in_time() -> None:
    with Metrics(()).endpoint(0) as url:
        times = [state.time for state, _ in zip(states(UrlSource(url), 0.1), range(4), strict=False)]
    assert times[-1] - times[0] >= 0.29


def test_the_endpoint_of_monitor_tells_of_this_machines_gpus(fake) -> None:
    fake()
    with opened(WatchOptions(port=0)) as (source, url):
        assert UrlSource(url).read().gpus[0].reading.watts == source.read().gpus[0].reading.watts == 650


def test_a_gpu_that_is_not_there_is_said(fake) -> None:
    fake()
    with pytest.raises(UsageError, match="no GPU 3"):
        Gpus((0, 3))


_FOREIGN = ('face3d_gpu_info{card="a"}', 'face3d_gpu_info{gpu="first",name="a"}', 'face3d_queue_length{queue="a"}')


@pytest.mark.parametrize(
    ("text", "problem"),
    [("<html></html>", "no text of Prometheus"), ("up 1\n", "no metrics of face3d-trt"), ("", "no metrics")]
    + [(f"face3d_batch_size_count 1\n{each} 1\n", "not those of this version") for each in _FOREIGN],
)
def test_another_page_is_no_endpoint(text, problem) -> None:
    with pytest.raises(UsageError, match=problem):
        parse(text, 0.0)


@pytest.mark.parametrize("text", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nup"])
def test_a_server_of_another_kind_is_no_endpoint(text) -> None:
    def answer() -> None:
        link, _ = listener.accept()
        with link:
            link.recv(4096)
            link.sendall(text)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(UsageError):
            UrlSource(f"http://127.0.0.1:{listener.getsockname()[1]}").read()
        thread.join()


def test_wrong_words_are_answered() -> None:
    for wrong in ("localhost:9400", "http://[::1"):
        with pytest.raises(UsageError, match="address of an endpoint"):
            UrlSource(wrong)
    with pytest.raises(UsageError, match="not both"):
        WatchOptions(url="http://localhost:9400", port=1)
    with pytest.raises(UsageError, match="too short"):
        WatchOptions(interval_s=0.0)
    result = CliRunner().invoke(app, ["monitor", "--devices", "first"])
    assert (result.exit_code, "first" in result.output) == (2, True)


def test_a_process_that_is_gone_is_missing() -> None:
    with Metrics(()).endpoint(0) as url:
        source = UrlSource(url)
        source.read()
    with pytest.raises(MissingError, match="nobody answers"):
        source.read()


def test_without_a_driver_it_says_so_and_ends_with_3() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "-1"}  # a machine with GPUs is one without
    command = [sys.executable, "-m", "face3d_trt", "monitor"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, check=False
    )
    assert result.returncode == 3
    assert re.match(r"error: (NVIDIA's driver is not there|CUDA shows no GPU)", result.stderr)
    assert "face3d-trt doctor" in result.stderr
    assert result.stdout == ""


def test_ctrl_c_is_its_usual_end(process) -> None:
    command = [sys.executable, "-m", "face3d_trt", "monitor", "--json", "--interval", "0.1s", "--url", process[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        lines = [child.stdout.readline() for _ in range(3)]
        child.send_signal(signal.SIGINT)
        rest, errors = child.communicate(timeout=30)
    assert (child.returncode, errors) == (0, "")
    assert [json.loads(line)["progress"]["images"]["written"] for line in [*lines, *rest.splitlines()]][:3] == [90] * 3
