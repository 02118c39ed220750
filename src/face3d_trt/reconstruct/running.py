"""The loop that leads a run: it hears workers and engines, and gives them what comes next. Messages only, no pixels."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from face3d_trt.errors import StoppedError
from face3d_trt.reconstruct.batching import Batcher
from face3d_trt.reconstruct.fleet import Fleet, Vessel, give_back
from face3d_trt.reconstruct.messages import Answer, Inferred, Ready
from face3d_trt.reconstruct.photos import is_for_codec
from face3d_trt.reconstruct.queues import Feeder, Group, Waiting
from face3d_trt.reconstruct.stats import Stats, Status

if TYPE_CHECKING:
    from face3d_trt.reconstruct.crew import Crew, Member
    from face3d_trt.reconstruct.gauges import Gauges
    from face3d_trt.reconstruct.processes import Child
    from face3d_trt.reconstruct.resume import Former, ResultList
    from face3d_trt.reconstruct.shared import Bays
    from face3d_trt.reconstruct.sizing import Size
    from face3d_trt.reconstruct.sources import Item
    from face3d_trt.reconstruct.start import Interrupts, Tell, Watch
    from face3d_trt.report import Reporter

_TICK_S = 0.1
_FAR_AHEAD = 4096  # groups that may be done before the one whose line is next
_DIED = "the process that decoded it died"


@dataclass(eq=False)
class Run:
    """The state of a run and the loop that moves it on."""

    crew: Crew
    fleet: Fleet
    bays: Bays
    feeder: Feeder
    results: ResultList
    former: Former
    items: tuple[Item, ...]
    size: Size
    interrupts: Interrupts
    gauges: Gauges
    active: dict[int, Group] = field(default_factory=dict)
    complete: bool = False

    def __post_init__(self) -> None:
        now = time.monotonic()
        self.stats = Stats(len(self.crew.members), len(self.fleet.vessels), now, len(self.crew.decoders))
        self.stats.counts.update(self.former.counts)
        self._free = list(range(self.bays.count - 1, -1, -1))
        self._by_bay: dict[int, Group] = {}
        self._waiting = Waiting()
        self._batcher = Batcher(self.size.batch)
        self._most = self.size.batch  # what the batch may be as far as memory goes
        self._selector = selectors.DefaultSelector()
        self._planned = sum(item.count for item in self.items if item.kind != "video")
        self._frames = self.former.frames(self.items)  # of videos, which are known as they come
        self._on_cpu = 0  # photos that the GPUs' codec left to the workers
        self._governed, self._shown = now, now
        self._notes: tuple[str, ...] = ()
        metrics = self.gauges.metrics
        self._lengths = self._queues()  # asked for from another thread
        metrics.queue("prepare", lambda: self._lengths["prepare"], self.bays.count)
        metrics.queue("infer", lambda: self._lengths["infer"])
        metrics.queue("products", lambda: self._lengths["products"], self.bays.count)

    def listen(self, report: Reporter, watch: Watch | None, tell: Tell | None) -> None:
        """Whom to tell."""
        self._report, self._watch = report, watch
        self._tell: Tell = tell or (lambda event, facts: None)

    def go(self) -> None:
        """Until everything is done, or the end was asked for."""
        for member in self.crew.everyone:
            self._register(member.child, partial(self._hear_worker, member))
        for vessel in self.fleet.vessels:
            self._register(vessel.child, partial(self._hear_engine, vessel))
        while not self._done():
            now = time.monotonic()
            self._pump(now)
            due = self._batcher.due()
            patience = _TICK_S if due is None else min(_TICK_S, max(0.0, due - now))
            for key, _ in self._selector.select(patience):
                key.data()
            self._tick()
        self.complete = not self.feeder.cut and not self.active
        self.last = self.status()
        if self._on_cpu:
            self._report.stage(f"{self._on_cpu} JPEGs were decoded on the CPU, as the GPU's codec does not take them")
        self._selector.close()

    def status(self) -> Status:
        """What it is doing now."""
        total = self._planned + self._frames
        queues, size = self._queues(), self._batcher.size
        found = self.stats.status(time.monotonic(), total, queues, size, self._notes)
        return replace(found, gpus=self.gauges.readings())

    def _queues(self) -> dict[str, int]:
        """What waits, or is being worked on."""
        working = [kind for member in self.crew.everyone for kind, _ in member.tasks]
        return {
            "prepare": len(self._waiting.prepare) + working.count("prepare") + working.count("photo"),
            "infer": len(self._batcher) + sum(b.rows for v in self.fleet.vessels for b in v.batches.values()),
            "products": len(self._waiting.finish) + working.count("finish"),
            "order": len(self.results),
        }

    def _done(self) -> bool:
        if self.interrupts.asked:
            self.feeder.stop()
        if self.interrupts.asked > 1:
            self.interrupts.hurry = True
            return True
        return not self.active and self.feeder.peek() is None

    def _register(self, child: Child, heard: Callable[[], None]) -> None:
        self._selector.register(child.connection, selectors.EVENT_READ, heard)

    def _pump(self, now: float) -> None:
        """Give out what can be given out."""
        self._feed_reader(now)
        self._feed_decoders(now)
        while member := self.crew.free():
            found = self._waiting.next() or self._next_group(now)
            if found is None:
                break
            self.crew.give(member, *found)
        while vessel := self.fleet.free():
            flush = self.fleet.idle and not self._more_crops_soon()
            batch = self._batcher.take(now, flush=flush)
            if batch is None:
                break
            self.fleet.give(vessel, batch, self._batcher.size)
            self.gauges.metrics.batch(batch.rows)

    def _more_crops_soon(self) -> bool:
        """Whether pictures are being prepared, which will bring crops."""
        return any(kind != "finish" for member in self.crew.everyone for kind, _ in member.tasks)

    def _feed_reader(self, now: float) -> None:
        while self._waiting.frames and self.crew.reader_is_free():
            self._give_reader(self._waiting.frames.popleft())
        while (group := self.feeder.peek()) and group.video and (group.video.ended or self.crew.reader_is_free()):
            if group.video.ended:
                self.results.put(self.feeder.pop().number, b"")
            elif not self._admit(now):
                return
            else:
                self._give_reader(group)

    def _give_reader(self, group: Group) -> None:
        assert self.crew.reader is not None
        self.crew.give(self.crew.reader, "frame", group)

    def _feed_decoders(self, now: float) -> None:
        while (group := self.feeder.peek()) and self._is_for_decoder(group) and (member := self.crew.free_decoder()):
            if not self._admit(now):
                return
            self.crew.give(member, "photo", group)

    def _is_for_decoder(self, group: Group) -> bool:
        return bool(self.crew.decoders) and not group.video and is_for_codec(group.items[0])

    def _next_group(self, now: float) -> tuple[str, Group] | None:
        group = self.feeder.peek()
        if group is None or group.video or self._is_for_decoder(group) or not self._admit(now):
            return None
        return "prepare", group

    def _admit(self, now: float) -> bool:
        """Give the next group a bay, if there is one."""
        group = self.feeder.peek()
        if group is None or not self._free or group.number - self.results.next > _FAR_AHEAD:
            return False
        self.feeder.pop()
        group.bay = self._free.pop()
        self.active[group.number] = self._by_bay[group.bay] = group
        self.stats.began(now)
        return True

    def _hear_worker(self, member: Member) -> None:
        heard = self.crew.answer(member)
        if heard is None:
            self._bury(member)
            return
        answer, group = heard
        for stage, seconds in answer.seconds.items():
            if member.gpu is None:
                self.stats.stage_s[stage] += seconds
            else:
                self.stats.decoder_s += seconds
            self.gauges.metrics.took(stage, seconds)
        hear = {"frame": self._framed, "photo": self._photo, "prepare": self._prepared, "finish": self._finished}
        hear[answer.kind](group, answer)

    def _bury(self, member: Member) -> None:
        self._selector.unregister(member.child.connection)
        before = set(self.crew.everyone)
        text = self.crew.replace(member, self._take_back)
        self._report.warn(text)
        self._tell("worker died", {"text": text})
        for fresh in set(self.crew.everyone) - before:
            self._register(fresh.child, partial(self._hear_worker, fresh))

    def _take_back(self, kind: str, group: Group) -> None:
        """A task of a worker that died."""
        if kind == "frame" and group.dead:
            self._framed(group, Answer(group.number, "frame", failures=((group.items[0].path, "decode", _DIED),)))
        elif kind == "photo":
            self._photo(group, Answer(group.number, "photo"))
        else:
            self._waiting.again(kind, group)

    def _framed(self, group: Group, answer: Answer) -> None:
        video = group.video
        assert video is not None
        if answer.photo is not None:
            group.photo = answer.photo
            self._frames += 1
            self._waiting.prepare.append(group)
            return
        text = b""
        if not video.ended:
            problem = answer.failures[0][2] if answer.failures else ""
            text = video.last_line(group.items[0].start, answer.counts.get("announced", 0), problem)
            if problem or not video.frames:
                self._tell("failed", {"name": video.item.name, "stage": "decode", "reason": problem or "no frames"})
                self._count({"failed": 1})
                self._frames += 1
        self._leave(group, text)

    def _photo(self, group: Group, answer: Answer) -> None:
        """A photo that a GPU has decoded, or has not: then a worker does."""
        group.photo = answer.photo
        self._on_cpu += answer.photo is None
        self._waiting.prepare.append(group)

    def _prepared(self, group: Group, answer: Answer) -> None:
        group.found, group.runs = answer.found, answer.runs
        group.rows = sum(stop - start for start, stop, _ in answer.runs)
        if not group.rows:
            self._waiting.finish.append(group)
            return
        now = time.monotonic()
        for start, stop, shape in answer.runs:
            self._batcher.add(group.bay, start, stop, shape, now)

    def _finished(self, group: Group, answer: Answer) -> None:
        self._leave(group, answer.lines)
        self._count(answer.counts)
        for name, stage, reason in answer.failures:
            self._tell("failed", {"name": name, "stage": stage, "reason": reason})

    def _count(self, counts: Mapping[str, int]) -> None:
        self.stats.finished(dict(counts), time.monotonic())
        for outcome, images in counts.items():
            self.gauges.metrics.image(outcome, images)

    def _leave(self, group: Group, lines: bytes) -> None:
        del self.active[group.number], self._by_bay[group.bay]
        self._free.append(group.bay)
        self.results.put(group.number, lines)

    def _hear_engine(self, vessel: Vessel) -> None:
        answer = self.fleet.answer(vessel)
        now = time.monotonic()
        if isinstance(answer, Ready):
            return
        if answer is None or (answer.problem and not answer.memory):
            self._reopen(vessel, answer.problem if answer else "", now)
            return
        if answer.memory:
            self._halve(vessel, answer, now)
            return
        self.stats.engine_s += answer.busy_s
        self.gauges.metrics.took("infer", answer.busy_s)
        for bay, start, stop in vessel.batches.pop(answer.ticket).parts:
            group = self._by_bay[bay]
            group.rows -= stop - start
            if not group.rows:
                self._waiting.finish.append(group)

    def _reopen(self, vessel: Vessel, problem: str, now: float) -> None:
        self._selector.unregister(vessel.child.connection)
        text = self.fleet.reopen(vessel, self._batcher, problem, now)
        self._report.warn(text)
        self._tell("engine failed", {"text": text})
        if vessel in self.fleet.vessels:
            self._register(vessel.child, partial(self._hear_engine, vessel))

    def _halve(self, vessel: Vessel, answer: Inferred, now: float) -> None:
        """Memory is too short for batches of this size."""
        batch = vessel.batches[answer.ticket]
        give_back(vessel, self._batcher, now, answer.ticket)
        assert vessel.ready is not None
        tried = max(batch.rows, self._most if vessel.ready.padded else 0)
        if tried // 2 < self._least:
            raise StoppedError(
                f"memory is too short for a batch of {tried}: {answer.problem}",
                run="nvidia-smi    # who uses it; then the same command with --resume",
            )
        if tried // 2 < self._most:
            self._most = tried // 2
            self._set_batch(self._most, f"memory is too short for a batch of {tried}, so it is {self._most} now")

    @property
    def _least(self) -> int:
        """Rows that every engine takes."""
        return max((vessel.ready.batch[0] for vessel in self.fleet.vessels if vessel.ready), default=1)

    def _set_batch(self, size: int, text: str, warn: bool = True) -> None:
        if size == self._batcher.size:
            return
        self._batcher.size = size
        self._notes = (*self._notes, text)[-3:]
        if warn:
            self._report.warn(text)
        self._tell("batch", {"size": size, "text": text})

    def _tick(self) -> None:
        now = time.monotonic()
        self.results.sync(now)
        if now - self._governed >= 1.0:
            self._governed = now
            size = max(self._least, min(self.gauges.allowed(self._most), self._most))
            self._set_batch(size, f"batches of up to {size}, as the limits of the GPUs have it", warn=False)
        if now - self._shown >= _TICK_S:
            self._shown = now
            self._lengths = self._queues()
            if self._watch:
                self._watch(self.status())
