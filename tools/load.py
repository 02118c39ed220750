"""Many clients at one server: requests/s, latency, and whether each client got its own answer.

python tools/load.py http://127.0.0.1:8080 --clients 1,10,50,200 --seconds 10
python tools/load.py http://127.0.0.1:8080 --clients 64 --crops 64 --processes 6     # 64 crops a request
python tools/load.py http://127.0.0.1:8080 --photo face.png                          # /v1/reconstruct
python tools/load.py http://127.0.0.1:8080 --pid 4711 --json load.json      # memory and CPU of that process's tree

Needs aiohttp (extra `dev`). Every client has one connection and sends its next request when it has its answer: a 429
makes it wait as long as Retry-After says. Before the load each picture is sent alone; an answer under load that is not
the one of its picture counts as wrong. Exit 1 if there was one, or a client that got no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mimetypes
import multiprocessing
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 224
PICTURES = 16  # different bodies
RAMP_S = 1.0  # at the begin of a level, not counted
NEAR = 0.05  # of an answer's distance to the nearest other answer: batches are not summed in one order
GIVE_UP_S = 120.0


@dataclass(frozen=True)
class Work:
    """What the clients send, and where."""

    url: str
    bodies: tuple[bytes, ...]
    kind: str
    form: bool
    token: str | None
    seconds: float
    expected: tuple[Any, ...] = ()

    def headers(self) -> dict[str, str]:
        """Of each request."""
        auth = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return auth if self.form else {**auth, "Content-Type": self.kind, "Accept": "application/octet-stream"}

    def data(self, which: int) -> Any:
        """The body of picture number `which`."""
        if not self.form:
            return self.bodies[which]
        import aiohttp

        form = aiohttp.FormData()
        form.add_field("crops", self.bodies[which], filename="crops", content_type="application/octet-stream")
        return form


@dataclass
class Seen:
    """What the clients saw."""

    statuses: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    wrong: int = 0

    def add(self, other: Seen) -> None:
        """Those of another process."""
        self.statuses.update(other.statuses)
        self.latencies.extend(other.latencies)
        self.wrong += other.wrong


def answer_of(body: bytes, kind: str) -> np.ndarray:
    """Coefficients in an answer, raw or JSON."""
    if kind.startswith("application/octet-stream"):
        return np.frombuffer(body, np.float32)
    found = json.loads(body)
    faces = [face["coefficients"].values() for image in found.get("images", ()) for face in image["faces"]]
    return np.concatenate([np.ravel(part).astype(np.float32) for face in (faces or found["coeffs"]) for part in face])


def matches(found: np.ndarray, which: int, expected: tuple[Any, ...]) -> bool:
    """Whether an answer is that of its picture."""
    own = expected[which]
    if found.shape != own.shape:
        return False
    others = [np.linalg.norm(own - each) for index, each in enumerate(expected) if index != which]
    return bool(np.linalg.norm(found - own) <= NEAR * min(others, default=np.linalg.norm(own)))


async def ask(session: Any, work: Work, which: int) -> tuple[int, bytes, str, float]:
    """One request: status, body, content type, Retry-After in seconds."""
    async with session.post(work.url, data=work.data(which), headers=work.headers()) as answer:
        after = float(answer.headers.get("Retry-After", 0))
        return answer.status, await answer.read(), answer.headers.get("Content-Type", ""), after


async def client(session: Any, work: Work, number: int, seen: Seen, begin: float) -> None:
    """One client until the time is over."""
    which = number
    end = begin + work.seconds
    while (sent := time.perf_counter()) < end:
        which = (which + 1) % len(work.bodies)
        try:
            status, body, kind, after = await ask(session, work, which)
        except Exception as error:
            seen.statuses[type(error).__name__] += 1
            await asyncio.sleep(0.1)
            continue
        if sent >= begin:
            seen.statuses[str(status)] += 1
        if status == 200:
            seen.wrong += not matches(answer_of(body, kind), which, work.expected)
            if sent >= begin:
                seen.latencies.append(time.perf_counter() - sent)
        elif after:
            await asyncio.sleep(after)


async def clients(work: Work, numbers: range, begin: float) -> Seen:
    """Some clients in one event loop."""
    import aiohttp

    seen = Seen()
    timeout = aiohttp.ClientTimeout(total=GIVE_UP_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(client(session, work, number, seen, begin) for number in numbers))
    return seen


def process(work: Work, numbers: range, begin: float, results: Any) -> None:
    """Body of one of the load's processes."""
    try:
        import uvloop

        seen = uvloop.run(clients(work, numbers, begin))
    except ImportError:
        seen = asyncio.run(clients(work, numbers, begin))
    results.put(seen)


def tree(pid: int) -> list[int]:
    """A process and all that come of it."""
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        for task in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            queue += [int(child) for child in task.read_text().split()]
    return found


def weigh(pid: int) -> tuple[float, float]:
    """MiB (shared memory counted once) and CPU seconds of a process tree."""
    mib = cpu = 0.0
    for each in tree(pid):
        with suppress(OSError, IndexError):  # it has ended meanwhile
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            mib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
            times = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            cpu += (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    return mib, cpu


def level(work: Work, count: int, processes: int, pid: int | None) -> tuple[Seen, dict[str, Any]]:
    """One number of clients."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    parts = [range(start, count, min(processes, count)) for start in range(min(processes, count))]
    begin = time.perf_counter() + RAMP_S + 0.5 * len(parts)  # CLOCK_MONOTONIC: the same in all processes
    running = [context.Process(target=process, args=(work, part, begin, results)) for part in parts]
    for each in running:
        each.start()
    time.sleep(max(0.0, begin - time.perf_counter()))
    cpu, most = (weigh(pid)[1], 0.0) if pid else (0.0, 0.0)
    while pid and time.perf_counter() < begin + work.seconds:
        most = max(most, weigh(pid)[0])
        time.sleep(0.5)
    used = weigh(pid)[1] - cpu if pid else 0.0
    seen = Seen()
    for _ in running:
        seen.add(results.get(timeout=work.seconds + GIVE_UP_S + 30))
    for each in running:
        each.join()
    return seen, figures(work, count, seen, most, used)


def figures(work: Work, count: int, seen: Seen, mib: float, cpu: float) -> dict[str, Any]:
    """What is told of a level."""
    good = len(seen.latencies)
    ms = np.percentile(seen.latencies, [50, 95, 99, 100]) * 1e3 if good else [float("nan")] * 4
    crops = len(work.bodies[0]) // SIDE**2 // 3 if work.kind == "application/octet-stream" else 1
    told: dict[str, Any] = {"clients": count, "requests_s": round(good / work.seconds, 1)}
    told |= {"images_s": round(good * crops / work.seconds, 1)}
    names = ("p50_ms", "p95_ms", "p99_ms", "max_ms")
    told |= {name: round(float(value), 2) for name, value in zip(names, ms, strict=True)}
    told |= {"statuses": dict(seen.statuses), "wrong": seen.wrong}
    if mib:
        told |= {"server_mib": round(mib), "server_cpu_ms_per_request": round(cpu / max(good, 1) * 1e3, 3)}
    return told


def pictures(crops: int) -> tuple[bytes, ...]:
    """Smooth random crops, each unlike the others."""
    random = np.random.default_rng(20)
    coarse = random.integers(0, 256, (PICTURES, crops, 7, 7, 3), np.uint8)
    return tuple(each.repeat(32, axis=1).repeat(32, axis=2).tobytes() for each in coarse)


async def alone(work: Work) -> tuple[Any, ...]:
    """The answer of each picture, asked for one after the other."""
    import aiohttp

    found = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=GIVE_UP_S)) as session:
        for which in range(len(work.bodies)):
            status, body, kind, _ = await ask(session, work, which)
            if status != 200:
                raise SystemExit(f"{work.url} answers {status}: {body[:500]!r}")
            found.append(answer_of(body, kind))
    return tuple(found)


def main() -> None:
    """Parse, run each level, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of the server, without a path")
    parser.add_argument("--clients", default="1,10,50,200")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--crops", type=int, default=1, help="in one request of /v1/coeffs")
    parser.add_argument("--photo", type=Path, help="send this to /v1/reconstruct instead")
    parser.add_argument("--form", action="store_true", help="crops as a form field")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--token", help="bearer token")
    parser.add_argument("--pid", type=int, help="server process: its memory and CPU time, with its children's")
    parser.add_argument("--json", type=Path, help="write the figures here, after each level")
    given = parser.parse_args()
    path, bodies, kind = "/v1/coeffs", pictures(given.crops), "application/octet-stream"
    if given.photo:
        path, bodies = "/v1/reconstruct", (given.photo.read_bytes(),)
        kind = mimetypes.guess_type(given.photo)[0] or "image/jpeg"
    work = Work(given.url.rstrip("/") + path, bodies, kind, given.form, given.token, given.seconds)
    work = Work(**{**vars(work), "expected": asyncio.run(alone(work))})
    told, failed = [], False
    for count in map(int, given.clients.split(",")):
        seen, line = level(work, count, given.processes, given.pid)
        told.append(line)
        print(json.dumps(line), flush=True)
        failed |= seen.wrong > 0 or any(not name.isdecimal() for name in seen.statuses)
        if given.json:
            given.json.write_text(json.dumps(told, indent=1) + "\n")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
