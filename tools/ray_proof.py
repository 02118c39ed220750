"""Show that a run over a Ray cluster loses nothing: two local nodes, the run and one node killed midway.

    python tools/ray_proof.py --plan engines/face3d_resnet50.onnx --out build/ray
    python tools/ray_proof.py --plan PLAN --out DIR --images 60 --save coeffs

One machine's run comes first. Then the same pictures over the cluster: the process that leads is killed (-9) at a
third, `--resume` goes on, and the raylet of the second node is killed (-9) at two thirds. Every file and every line has
to be that of one machine's run, byte for byte. Writes DIR/results.json; exit 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
STORE = 200 << 20  # bytes of each node's object store
BAD = 25  # every so many files, one that is no picture


def main(words: Sequence[str] | None = None) -> int:
    """Run it, check it, say what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=Path, required=True, help="a plan or an ONNX file")
    parser.add_argument("--out", type=Path, required=True, help="folder; what is in it is removed")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--save", default="coeffs", help="as for reconstruct")
    parser.add_argument("--cpus", type=int, default=2, help="that each node gives out")
    chosen = parser.parse_args(words)
    out = chosen.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    make_crops(out / "faces", chosen.images)
    command = [sys.executable, "-m", "face3d_trt", "reconstruct", str(out / "faces"), "--plan", str(chosen.plan)]
    command += ["--save", chosen.save, "--detector", "aligned", "--devices", "cpu"]
    say(f"{chosen.images} crops; one machine")
    start = time.monotonic()
    subprocess.run([*command, "-o", str(out / "one"), "--workers", "1"], check=True, stdout=subprocess.DEVNULL)
    facts: dict[str, Any] = {"images": chosen.images, "save": chosen.save, "one_machine_s": time.monotonic() - start}
    facts |= on_cluster([*command, "-o", str(out / "many")], out / "many" / "results.jsonl", chosen.images, chosen.cpus)
    facts |= compare(out / "one", out / "many", chosen.images)
    (out / "results.json").write_text(json.dumps(facts, indent=1) + "\n")
    say(json.dumps(facts))
    return 0 if facts["whole"] else 1


def make_crops(folder: Path, count: int) -> None:
    """Fill `folder` with 224 px JPEGs, no two alike, and files that only claim to be pictures."""
    from PIL import Image

    from face3d_trt.faces.samples import sample_crops

    crops = sample_crops().astype(np.float32)
    folder.mkdir(parents=True)
    for index in range(count):
        path = folder / f"{index:05}.jpg"
        if index % BAD == BAD - 1:
            path.write_text("no picture")
            continue
        shade = 0.7 + 0.3 * index / count
        Image.fromarray((crops[index % len(crops)] * shade).astype(np.uint8)).save(path, quality=90)


def on_cluster(command: list[str], results: Path, images: int, cpus: int) -> dict[str, Any]:
    """Run it over two nodes, with two deaths on the way."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    from ray.cluster_utils import Cluster

    start = time.monotonic()
    resources = {"num_cpus": cpus, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**resources, "include_dashboard": False})
    try:
        second = cluster.add_node(**resources)
        facts: dict[str, Any] = {"start_s": time.monotonic() - start}
        say(f"two nodes at {cluster.address}; starting the run")
        command = [*command, "--ray", cluster.address, "--log"]
        start = time.monotonic()
        facts["lines_when_the_run_was_killed"] = run_until(command, results, images // 3, None)
        again = [*command, "--resume"]
        raylet = second.all_processes["raylet"][0].process.pid
        facts["lines_when_the_node_was_killed"] = run_until(again, results, 2 * images // 3, raylet)
        return facts | {"cluster_s": time.monotonic() - start}
    finally:
        cluster.shutdown()


def run_until(command: list[str], results: Path, lines: int, victim: int | None) -> int:
    """Kill -9 a process at so many lines: `victim`, after which the run has to end well, or the run itself.

    Returns:
        Lines that there were.
    """
    log = results.parent.with_name(f"log-{'run' if victim is None else 'node'}.jsonl")
    with log.open("w") as file:
        run = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
    there = 0
    while run.poll() is None and there < lines:
        time.sleep(0.005)
        there = max(0, results.read_bytes().count(b"\n") - 1) if results.exists() else 0
    if run.poll() is not None:
        raise SystemExit(f"the run ended with {run.returncode} at {there} lines, before anything was killed: see {log}")
    os.kill(victim or run.pid, signal.SIGKILL)
    say(f"killed {'the run' if victim is None else 'a node'} at {there} lines")
    code = run.wait()
    if victim is not None and code:
        raise SystemExit(f"the run ended with {code}: see {log}")
    for text in log.read_text().splitlines():
        if " lines" in text or "gone" in text:
            say(text)
    return there


def compare(one: Path, many: Path, images: int) -> dict[str, Any]:
    """Whether every picture is there once, and every file is that of the one machine's run."""
    records = [json.loads(text) for text in (many / "results.jsonl").read_text().splitlines()[1:]]
    names = Counter(record["name"] for record in records)
    expected, found = tree(one), tree(many)
    different = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    facts: dict[str, Any] = {
        "lines": len(records),
        "twice": sum(count - 1 for count in names.values()),
        "outcomes": dict(Counter(record["status"] for record in records)),
        "files": len(found),
        "files_that_differ": different[:20],
    }
    return facts | {"whole": len(names) == len(records) == images and not different}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file, by name."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def say(text: str) -> None:
    """A line, at once."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
