"""A server as a user starts it, and a client that can misbehave."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

START_S, END_S = 90, 60  # a busy machine
RAW = "application/octet-stream"
CROP_BYTES = 224 * 224 * 3


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_problem(self) -> bool:
        """Whether it is a document of RFC 9457 that says its status."""
        if self.headers.get("content-type") != "application/problem+json":
            return False
        told = self.json()
        return {"type", "title", "status", "detail"} <= set(told) and told["status"] == self.status


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    token: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """One request on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            return read(connection.getresponse())
        finally:
            connection.close()

    def crops(self, body: bytes, accept: str = RAW, **headers: str) -> Answer:
        return self.ask("POST", "/v1/coeffs", body, {"Content-Type": RAW, "Accept": accept, **headers})

    def photo(self, body: bytes, query: str = "", kind: str = "image/png", **headers: str) -> Answer:
        return self.ask("POST", f"/v1/reconstruct{query}", body, {"Content-Type": kind, **headers})

    def raw(self, data: bytes, then: bytes = b"", pause: float = 0.0) -> Answer:
        """Bytes as they are, the answer to the first request in them."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as link:
            link.sendall(data)
            if pause:
                time.sleep(pause)
                link.sendall(then)
            response = HTTPResponse(link)
            response.begin()
            try:
                return read(response)
            finally:
                response.close()

    def processes(self, kind: str) -> list[int]:
        """Children whose memory says that they are a `kind`: engines map the fronts' crops, and so on."""
        return [pid for pid in children(self.process.pid) if kind in names(pid)]

    def metric(self, name: str) -> float:
        """The sample whose line begins with `name`; 0 where there is none yet."""
        text = self.ask("GET", "/metrics").body.decode()
        found = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(found[0]) if found else 0.0

    def wait_until_ready(self) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if self.ask("GET", "/readyz").status == 200:
                    return
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        raise AssertionError(f"not ready: {self.log.read_text()}")

    def stop(self) -> int:
        """SIGTERM, and how it ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(END_S)


def read(response: HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def children(pid: int) -> list[int]:
    return [int(each) for task in Path(f"/proc/{pid}/task").glob("*/children") for each in task.read_text().split()]


def names(pid: int) -> str:
    """What a process is: `engine`, `front` or `photos`, by the libraries that it has."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""
    for kind, library in (("engine", "onnxruntime"), ("photos", "cv2"), ("front", "httptools")):
        if library in maps:
            return kind
    return ""


@contextlib.contextmanager
def serving(plan: Path, log: Path, *options: str, ready: bool = True) -> Iterator[Served]:
    """Start `face3d-trt serve`, and end it with SIGTERM unless the test has."""
    command = [sys.executable, "-m", "face3d_trt", "serve", str(plan), "--port", "0", "--drain", "0.2s", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=os.environ | {"COLUMNS": "200", "TMPDIR": str(log.parent)}
        )
    try:
        served = Served(process, _port(process, log), log)
        if ready:
            served.wait_until_ready()
        yield served
        if process.poll() is None:
            assert served.stop() == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text()):
            return int(found[1])
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError("it does not listen")
