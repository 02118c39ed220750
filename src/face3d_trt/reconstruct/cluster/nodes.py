"""The cluster: joining it, what it has, and whether its machines see the same files."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from face3d_trt import __version__
from face3d_trt.errors import MissingError, UsageError
from face3d_trt.optional import require
from face3d_trt.reconstruct.results import WORK

_LOOK_S = 120.0  # that a node may take to start a process and look at the files
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what Ray would print on stdout; read as it is imported
}
_SHARED = "a folder on a file system that all nodes have under the same path"


@dataclass(frozen=True)
class Node:
    """A machine of the cluster.

    Attributes:
        id: Ray's.
        name: For people.
        cpus: That Ray gives out.
        gpus: Likewise.
    """

    id: str
    name: str
    cpus: int
    gpus: int


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """The module `ray`, as part of the cluster while the `with` block runs. Ray's own output is kept in its logs.

    Args:
        address: "auto" for the one of this machine, HOST:PORT, or "local" for one that is started here and ends with
            the block.

    Raises:
        MissingError: Ray is not installed, or there is no cluster.
        UsageError: The address is that of a Ray client, which is no part of the cluster.
    """
    if "://" in address:
        raise UsageError(
            f"--ray {address}: this process has to be on a node of the cluster",
            allowed="auto, HOST:PORT, or local",
            run="the same command with --ray auto, on one of the nodes",
        )
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    ray = require("ray", "ray", "--ray")
    require("ray.data", "ray", "--ray")
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise MissingError(
            f"--ray {address}: no Ray cluster answers: {error}",
            allowed="auto on a node of a cluster, HOST:PORT of its head, or local",
            run="ray start --head    # and on the others: ray start --address=HEAD:6379",
        ) from error
    _keep_quiet(ray)
    try:
        yield ray
    finally:
        ray.shutdown()


def alive(ray: Any) -> tuple[Node, ...]:
    """The nodes that answer."""
    found = []
    for each in ray.nodes():
        if each["Alive"]:
            has = each["Resources"]
            name = f"{each['NodeManagerHostname']} ({each['NodeManagerAddress']})"
            found.append(Node(each["NodeID"], name, int(has.get("CPU", 0)), int(has.get("GPU", 0))))
    return tuple(sorted(found, key=lambda node: node.id))


def check_shared(ray: Any, nodes: tuple[Node, ...], output: Path, needed: tuple[Path, ...]) -> None:
    """Have every node that works look at the files of the run, and write beside the results.

    Args:
        ray: The module.
        nodes: Of the cluster.
        output: Folder of the results.
        needed: Files and folders that are read.

    Raises:
        UsageError: A node does not see them, may not write, or has another version of this package.
    """
    token = uuid.uuid4().hex
    mark = output / WORK / f"shared-{token}"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(token)
    sizes = {str(path): path.stat().st_size if path.is_file() else -1 for path in needed}
    look = ray.remote(num_cpus=0, max_retries=0)(look_at)
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = {
        look.options(scheduling_strategy=strategy(node.id, soft=False)).remote(
            str(mark), token, sizes, __version__
        ): node
        for node in nodes
        if node.cpus or node.gpus
    }
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_LOOK_S)
    problems = [f"{asked[ref].name}: no answer in {_LOOK_S:.0f} s" for ref in silent]
    for ref in answered:
        try:
            problem = ray.get(ref)
        except Exception as error:  # the package is not there, or the node has gone
            problem = str(error).strip().splitlines()[-1]
        if problem:
            problems.append(f"{asked[ref].name}: {problem}")
    with suppress(OSError):
        mark.unlink()
    if problems:
        raise UsageError(
            "not every node can take part:\n  " + "\n  ".join(sorted(problems)),
            allowed=f"sources, plan and -o in {_SHARED}, and face3d-trt {__version__} on all of them",
        )


def look_at(mark: str, token: str, sizes: dict[str, int], version: str) -> str:
    """What is wrong on this node; "" if nothing is."""
    if version != __version__:
        return f"face3d-trt is {__version__} there"
    if not os.path.isfile(mark):
        return f"{Path(mark).parent} is not the same folder as on the machine that leads the run"
    if Path(mark).read_text() != token:
        return f"{mark} has other content"
    for path, size in sizes.items():
        if not os.path.exists(path):
            return f"{path} is not there"
        if size >= 0 and os.path.getsize(path) != size:
            return f"{path} is another file"
    try:
        mine = Path(f"{mark}-{uuid.uuid4().hex}")
        mine.write_text(token)
        mine.unlink()
    except OSError as error:
        return f"{Path(mark).parent} cannot be written: {error.strerror}"
    return ""


def _keep_quiet(ray: Any) -> None:
    """Nothing on the console but our own; Ray Data's logs are in Ray's folder all the same."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    if hasattr(context, "print_on_execution_start"):
        context.print_on_execution_start = False
    for name in ("ray.data", "ray"):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                handler.setLevel(logging.CRITICAL + 1)
