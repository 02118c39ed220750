"""A run over the nodes of a Ray cluster: Ray Data moves the pictures, this process keeps the list of results."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from face3d_trt.errors import StoppedError, StorageError
from face3d_trt.reconstruct.cluster.job import check_options, describe_on, group_size, job_of, runs_on_cpu, stages_of
from face3d_trt.reconstruct.cluster.nodes import alive, check_shared, joined
from face3d_trt.reconstruct.cluster.parcels import Job, Parcel, unpack
from face3d_trt.reconstruct.engines import EngineSetup
from face3d_trt.reconstruct.gauges import Gauges
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.options import ReconstructOptions, find_plan
from face3d_trt.reconstruct.pipeline import items_of
from face3d_trt.reconstruct.results import Failure, failed, line
from face3d_trt.reconstruct.resume import Former, ResultList, images_of, in_order, results_of
from face3d_trt.reconstruct.start import (
    Interrupts,
    Summary,
    Tell,
    Watch,
    face_file,
    facts_of_run,
    watch_signals,
)
from face3d_trt.reconstruct.stats import Stats, Status
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.reconstruct.sources import Item

_TICK_S = 0.1
_LOOK_S = 5.0  # from one look at the nodes to the next
_SILENCE_S = 300.0  # without a result, after which somebody should look
_LOST = "its tasks failed three times; Ray's logs say why"


def reconstruct_on_ray(
    options: ReconstructOptions,
    address: str,
    report: Reporter = SILENT,
    watch: Watch | None = None,
    tell: Tell | None = None,
) -> Summary:
    """As `pipeline.reconstruct`, with the machines of a Ray cluster. Sources, plan and output are on all of them.

    Args:
        options: What, with what, and how much at a time.
        address: "auto", HOST:PORT, or "local"; see `nodes.joined`.
        report: Told stages and warnings.
        watch: Called about ten times a second with a Status.
        tell: Called with the name of an event and its facts, for a log.

    Returns:
        How it ended. An interrupt leaves what has its line, and drops what is on its way.

    Raises:
        UsageError: Options that mean nothing here, or a node that does not see the files.
        MissingError: Ray, a cluster, a GPU, a plan; StorageError where the output cannot be written.
        StoppedError: A full disk, or engines that fail: what was done is in the list, and --resume goes on.
    """
    check_options(options)
    plan = find_plan(options.plan).absolute()
    items = items_of(options)
    face = face_file(options, plan)
    with ExitStack() as stack:
        ray = stack.enter_context(joined(address))
        nodes = alive(ray)
        on_cpu = runs_on_cpu(options, nodes)
        facts = facts_of_run(options, plan, on_cpu)
        results, former = stack.enter_context(
            results_of(options.results, options.output, facts, options.resume, report)
        )
        interrupts = stack.enter_context(watch_signals())
        gauges = stack.enter_context(Gauges((), None, options.metrics_port, report))
        needed = [Path(source).absolute() for source in options.sources if Path(source).exists()]
        needed += [path.absolute() for path in (plan, face, options.landmarks) if path]
        check_shared(ray, nodes, options.output.absolute(), tuple(needed))
        report.stage(f"engine     {plan}")
        ready = describe_on(ray, EngineSetup(plan, CPU if on_cpu else 0, 1))
        job = job_of(options, plan, face, ready, nodes, on_cpu)
        report.stage(f"nodes      {len(nodes)}, with {job.engines} engines: {', '.join(node.name for node in nodes)}")
        stats = Stats(max(1, sum(node.cpus for node in nodes)), job.engines, time.monotonic())
        run = _Run(ray, job, items, former, results, interrupts, stats, gauges, options)
        run.listen(report, watch, tell)
        interrupts.running = True
        try:
            run.go()
        except StorageError as error:
            raise StoppedError(
                f"stopped: {error.problem}",
                allowed=error.allowed,
                run="the same command with --resume, once there is room",
            ) from error
    in_order(options.results, {item.name: place for place, item in enumerate(items)})
    return Summary(
        counts=dict(stats.counts),
        here=stats.here,
        status=run.last,
        results=options.results,
        interrupted=run.interrupted,
        backend=ready.backend,
        gpus={},
    )


@dataclass(eq=False)
class _Run:
    """The state of a run."""

    ray: Any
    job: Job
    items: Sequence[Item]
    former: Former
    results: ResultList
    interrupts: Interrupts
    stats: Stats
    gauges: Gauges
    options: ReconstructOptions
    interrupted: bool = False
    _names: set[str] = field(default_factory=set)
    _notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        now = time.monotonic()
        self.stats.counts.update(self.former.counts)
        self._names.update(self.former.names)
        self._nodes = self._seen = alive(self.ray)
        self._looked, self._shown, self._heard = now, now, now
        self._videos = frozenset(item.name for item in self.items if item.kind == "video")
        self._paths = {_absolute(item).path: item.path for item in self.items}  # as given, for what people read
        self._by_node: Counter[str] = Counter()
        self._frames = self.former.frames(self.items)  # of videos, which are known as they come
        self._planned = sum(item.count for item in self.items if item.kind != "video")

    def listen(self, report: Reporter, watch: Watch | None, tell: Tell | None) -> None:
        """Whom to tell."""
        self._report, self._watch = report, watch
        self._tell: Tell = tell or (lambda event, facts: None)

    def go(self) -> None:
        """Everything; what is lost with processes once more, each picture alone; what is lost again has failed."""
        cpus = max(1, sum(node.cpus for node in self._nodes))
        for size in (group_size(self.options, len(self.items), cpus), 1, 1):
            todo = [item for item in self.items if item.name not in self._names]
            if not todo or self.interrupted:
                break
            self._pass(todo, size)
        lost = [item for item in self.items if item.name not in self._names]
        self.interrupted &= bool(lost)
        if not self.interrupted:
            for item in lost:
                self._put(Parcel(item, line=line(failed(item.name, Failure("products", _LOST)))))
        self._look(time.monotonic())
        self.last = self.status()
        for node in self._seen:
            self._report.stage(f"{node.name}: {self._by_node[node.id]} lines{'' if node in self._nodes else ', gone'}")

    def status(self) -> Status:
        """What it is doing now."""
        total = self._planned + self._frames
        return self.stats.status(time.monotonic(), total, {}, self.job.batch[1], self._notes)

    def _pass(self, items: Sequence[Item], size: int) -> None:
        parcels = [Parcel(_absolute(item), skip=self._done_frames(item)) for item in items]
        arrived: queue.Queue[Any] = queue.Queue(maxsize=16)
        dataset = stages_of(self.ray, self.job, parcels, size, self.options)
        threading.Thread(target=_pull, args=(dataset, arrived), name="face3d-trt results", daemon=True).start()
        self.stats.began(time.monotonic())
        while not self.interrupts.asked:
            try:
                table = arrived.get(timeout=_TICK_S)
            except queue.Empty:
                self._tick()
                continue
            if table is None:
                return
            if isinstance(table, BaseException):
                raise StoppedError(
                    f"Ray gave up: {str(table).strip().splitlines()[-1]}", run="the same command with --resume"
                ) from table
            for parcel in unpack(table):
                self._take(parcel)
            self._tick()
        self.interrupted = True

    def _take(self, parcel: Parcel) -> None:
        if parcel.stop:
            raise parcel.stop
        for stage, seconds in parcel.seconds.items():
            self.gauges.metrics.took(stage, seconds)
            if stage == "infer":
                self.stats.engine_s += seconds
            else:
                self.stats.stage_s[stage] += seconds
        self._put(parcel)

    def _put(self, parcel: Parcel) -> None:
        """Into the list, unless a lost task's twin was first."""
        record = json.loads(parcel.line)
        name = record["name"]
        if name in self._names:
            return
        if "reason" in record and (given := self._paths.get(parcel.item.path)):
            record["reason"] = record["reason"].replace(parcel.item.path, given)
        self._names.add(name)
        self._by_node[parcel.node] += 1
        self.results.put(self.results.next, line(record))
        now = self._heard = time.monotonic()
        status, count = record["status"], images_of(record)
        if status != "video":
            self._frames += name in self._videos or name.rpartition("/")[0] in self._videos
            self.stats.finished({status: count}, now)
            self.gauges.metrics.image(status, count)
        if status == "failed":
            self._tell("failed", {key: record[key] for key in ("name", "stage", "reason")})

    def _done_frames(self, item: Item) -> frozenset[int]:
        if item.kind != "video":
            return frozenset()
        numbers = (name.removeprefix(f"{item.name}/") for name in self._names if name.startswith(f"{item.name}/"))
        return frozenset(int(number) for number in numbers if number.isdigit())

    def _tick(self) -> None:
        now = time.monotonic()
        self.results.sync(now)
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._look(now)
        if self._watch and now - self._shown >= _TICK_S:
            self._shown = now
            self._watch(self.status())

    def _look(self, now: float) -> None:
        nodes = alive(self.ray)
        self._seen = tuple(dict.fromkeys((*self._seen, *nodes)))
        for gone in set(self._nodes) - set(nodes):
            self._note(f"the node {gone.name} is gone; what it had is done again by the others")
        for new in set(nodes) - set(self._nodes):
            self._note(f"the node {new.name} has joined")
        self._nodes = nodes
        if now - self._heard > _SILENCE_S:
            self._heard = now
            cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
            self._note(
                f"no result for {_SILENCE_S:.0f} s: {len(nodes)} nodes with {cpus} CPUs and {gpus} GPUs are there"
            )

    def _note(self, text: str) -> None:
        self._notes = (*self._notes, text)[-3:]
        self._report.warn(text)
        self._tell("nodes", {"text": text})


def _pull(dataset: Any, arrived: queue.Queue[Any]) -> None:
    """In a thread, since nothing can be asked of Ray Data with a time limit."""
    try:
        for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1):
            arrived.put(table)
        arrived.put(None)
    except BaseException as error:
        arrived.put(error)


def _absolute(item: Item) -> Item:
    return replace(item, path=str(Path(item.path).absolute()))
