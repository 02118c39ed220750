"""Death, overload and the end: every client gets an answer, and it is its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import numpy as np
import pytest
from tests.serving.served import CROP_BYTES, RAW, START_S, Served, children, serving

HEADERS = {"Content-Type": RAW, "Accept": RAW}


class Clients:
    """Clients that ask until they are stopped, each on a connection of its own, and look at every answer."""

    def __init__(self, served: Served, crops: np.ndarray, count: int) -> None:
        self._served, self._crops = served, crops
        self._expected = [np.frombuffer(served.crops(crop.tobytes()).body, "<f4") for crop in crops]
        self.statuses: Counter[int] = Counter()
        self.wrong, self.broken = 0, list[str]()
        self.refused = 0
        self.stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def __enter__(self) -> Clients:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopping.set()
        for each in self._threads:
            each.join(60)
        assert not any(each.is_alive() for each in self._threads)

    def wait_for(self, answers: int) -> None:
        """Until so many more 200s have come."""
        target, until = self.statuses[200] + answers, time.monotonic() + START_S
        while self.statuses[200] < target:
            assert time.monotonic() < until, self.statuses
            time.sleep(0.01)

    def _run(self, number: int) -> None:
        connection: HTTPConnection | None = None
        while not self.stopping.is_set():
            if connection is None:
                connection = HTTPConnection("127.0.0.1", self._served.port, timeout=60)
                try:
                    connection.connect()
                except OSError:  # nothing was accepted, so nothing is lost
                    self.refused += 1
                    return
            which = number % len(self._crops)
            try:
                connection.request("POST", "/v1/coeffs", self._crops[which].tobytes(), HEADERS)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, HTTPException) as error:
                self.broken.append(repr(error))
                return
            self.statuses[answer.status] += 1
            if answer.status == 200 and not np.allclose(np.frombuffer(body, "<f4"), self._expected[which], atol=1e-4):
                self.wrong += 1
            if answer.will_close:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()


def test_an_engine_that_is_killed_under_load_costs_its_requests_a_503_once(crops_server: Served, many_crops):
    engines = crops_server.processes("engine")
    assert len(engines) == 2
    with Clients(crops_server, many_crops, 16) as clients:
        clients.wait_for(50)
        os.kill(engines[0], signal.SIGKILL)
        clients.wait_for(50)
        os.kill(engines[1], signal.SIGKILL)
        crops_server.wait_until_ready()
        clients.wait_for(50)
    assert set(clients.statuses) <= {200, 503}
    assert (clients.wrong, clients.broken, clients.refused) == (0, [], 0)
    until = time.monotonic() + START_S
    while crops_server.metric("face3d_replicas_ready") < 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert not set(engines) & set(crops_server.processes("engine"))
    assert crops_server.metric('face3d_restarts_total{process="engine"}') == 2
    assert crops_server.metric('face3d_queue_length{stage="infer"}') == 0


def test_an_engine_that_hangs_gives_504_at_the_deadline(crops_server: Served, many_crops):
    engines = crops_server.processes("engine")
    for pid in engines:
        os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        answer = crops_server.crops(many_crops[0].tobytes())
        assert (answer.status, answer.is_problem) == (504, True)
        assert 2 < time.monotonic() - begun < 15
    finally:
        for pid in engines:
            os.kill(pid, signal.SIGCONT)
    assert crops_server.crops(many_crops[0].tobytes()).status == 200


def test_a_front_that_is_killed_is_replaced(crops_server: Served, many_crops):
    for pid in crops_server.processes("front"):
        os.kill(pid, signal.SIGKILL)
    crops_server.wait_until_ready()
    assert crops_server.crops(many_crops[0].tobytes()).status == 200


def test_a_photo_that_kills_its_reader_gets_503_and_the_next_one_its_face(server: Served, photo: bytes):
    (reader,) = server.processes("photos")
    os.kill(reader, signal.SIGSTOP)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(server.photo(photo).status))
    asking.start()
    while server.metric('face3d_queue_length{stage="photo"}') < 1:
        time.sleep(0.02)
    os.kill(reader, signal.SIGKILL)
    asking.join(60)
    assert answers == [503]
    server.wait_until_ready()
    assert server.photo(photo).status == 200


@contextlib.contextmanager
def unfinished(served: Served, rows: int, count: int) -> Iterator[list[socket.socket]]:
    """Requests whose bodies do not end."""
    length = rows * CROP_BYTES
    with contextlib.ExitStack() as stack:
        links = []
        for _ in range(count):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=60))
            lines = ("POST /v1/coeffs HTTP/1.1", "Host: x", f"Content-Type: {RAW}", f"Content-Length: {length}")
            link.sendall("\r\n".join((*lines, "", "")).encode())
            links.append(link)
        yield links


def test_a_full_queue_says_429_and_when_to_come_again(server: Served, many_crops):
    with unfinished(server, rows=8, count=2):
        while server.metric('face3d_queue_length{stage="infer"}') < 16:
            time.sleep(0.02)
        answer = server.crops(many_crops[0].tobytes())
        assert (answer.status, answer.is_problem, answer.headers["retry-after"]) == (429, True, "1")
    until = time.monotonic() + 20
    while server.metric('face3d_queue_length{stage="infer"}') > 0 and time.monotonic() < until:
        time.sleep(0.02)
    assert server.crops(many_crops[0].tobytes()).status == 200


def at_once(served: Served, count: int) -> set[int]:
    """Statuses of so many clients that all connect before the first is answered."""
    with contextlib.ExitStack() as stack:
        links = []
        for _ in range(count):
            links.append(stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=60)))
            links[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        return {int(link.recv(100).split()[1]) for link in links}


def lives(pid: int) -> bool:
    """Whether a process runs, and is not just waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_while_it_starts_it_says_503_then_it_wants_its_token(tiny_plan: Path, many_crops, tmp_path_factory):
    folder = tmp_path_factory.mktemp("s")  # a short path, for sockets
    (folder / "token").write_text("0123456789abcdef0123\n")
    options = ("--photo-workers", "0", "--token-file", str(folder / "token"))
    before, crop, good = sorted(tiny_plan.parent.iterdir()), many_crops[0].tobytes(), "Bearer 0123456789abcdef0123"
    with serving(tiny_plan, folder / "log", *options, ready=False) as served:
        while len(children(served.process.pid)) < 3:  # multiprocessing's tracker, the front, the engine
            time.sleep(0.01)
        engine = children(served.process.pid)[-1]
        os.kill(engine, signal.SIGSTOP)
        assert at_once(served, 400) == {200}  # more than the fronts' queue takes while they start
        assert served.ask("GET", "/healthz").status == 200
        assert served.ask("GET", "/readyz").status == 503
        early = served.crops(crop, Authorization=good)
        assert (early.status, early.is_problem, early.headers["retry-after"]) == (503, True, "1")
        os.kill(engine, signal.SIGCONT)
        served.wait_until_ready()
        assert served.crops(crop, Authorization=good).status == 200
        for wrong in ("", "Bearer", good[:-1], good.replace("Bearer", "Basic"), "Bearer \xff"):
            answer = served.crops(crop, Authorization=wrong)
            assert (answer.status, answer.is_problem, answer.headers["www-authenticate"]) == (401, True, "Bearer")
        assert served.crops(crop).status == 401
        for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
            assert served.ask("GET", path).status == 200
        assert served.photo(b"x", Authorization=good).status == 501  # it reads no photos
        left = children(served.process.pid)
        served.process.kill()  # nobody outlives the parent
        served.process.wait()
        until = time.monotonic() + 20
        while any(map(lives, left)):
            assert time.monotonic() < until
            time.sleep(0.02)
    assert sorted(tiny_plan.parent.iterdir()) == before


def test_sigterm_under_load_loses_no_request(crops_server: Served, many_crops):
    with Clients(crops_server, many_crops, 16) as clients:
        clients.wait_for(100)
        assert crops_server.stop() == 0
    assert set(clients.statuses) == {200}
    assert (clients.wrong, clients.broken) == (0, [])
    assert clients.refused == 16  # all went on until nobody listened


@pytest.mark.parametrize("kind", ["missing", "no plan"])
def test_a_plan_that_cannot_run_ends_the_server_with_the_reason(kind, tmp_path: Path):
    import subprocess
    import sys

    plan = tmp_path / "x.plan"
    if kind == "no plan":
        plan.write_bytes(b"nothing")
    command = [sys.executable, "-m", "face3d_trt", "serve", str(plan), "--port", "0", "--photo-workers", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == (3 if kind == "missing" else 2), done.stderr
    assert "x.plan" in done.stderr
    assert list(tmp_path.iterdir()) == ([] if kind == "missing" else [plan])
