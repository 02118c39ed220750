"""The workers of a run, seen from the process that leads it: who has what, and what to do when one dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from face3d_trt.errors import StoppedError
from face3d_trt.reconstruct.gpus import device_name
from face3d_trt.reconstruct.messages import Answer, Broken, Setup
from face3d_trt.reconstruct.photos import AT_ONCE, decode_photos
from face3d_trt.reconstruct.processes import ONE_THREAD, QUIET, Child
from face3d_trt.reconstruct.workers import work

if TYPE_CHECKING:
    from face3d_trt.reconstruct.queues import Group
    from face3d_trt.reconstruct.shared import Bays, Memory

_AHEAD = 2  # tasks of a worker: one that it does, and the next, so that it never waits for the leader
_MOST_DEATHS = 3  # of workers that were at nothing, which no picture explains


@dataclass(eq=False)
class Member:
    """One worker.

    Attributes:
        child: Its process.
        gpu: Of one that decodes photos.
        tasks: (kind, group) that it was given and has not answered, in order.
    """

    number: int
    child: Child
    gpu: int | None = None
    tasks: deque[tuple[str, Group]] = field(default_factory=deque)


class Crew:
    """The workers. They are started at once, and told what the run is about when the engines are there.

    Args:
        count: How many.
        memory: Of the bays.
        videos: Whether one more is needed, who decodes videos and does nothing else: frames come in order.
        gpus: On which others decode photos, one on each.
    """

    def __init__(self, count: int, memory: Memory, videos: bool, gpus: Sequence[int] = ()) -> None:
        self._memory = memory
        self._numbers = 0
        self._deaths = self._decoder_deaths = 0
        self._setup: Setup | None = None
        self._bays: Bays | None = None
        self.members: list[Member] = []
        self.reader: Member | None = None
        for _ in range(count):
            self.members.append(self._hire())
        if videos:
            self.reader = self._hire()
        self.decoders = [self._hire(gpu) for gpu in gpus]

    @property
    def everyone(self) -> Iterator[Member]:
        """All workers."""
        yield from self.members
        if self.reader:
            yield self.reader
        yield from self.decoders

    def start(self, setup: Setup, bays: Bays) -> None:
        """Tell everyone what the run is about."""
        self._setup, self._bays = setup, bays
        for member in self.everyone:
            member.child.tell(setup)

    def free(self) -> Member | None:
        """The worker with the least to do; None: all have enough."""
        member = min(self.members, key=lambda each: len(each.tasks))
        return member if len(member.tasks) < _AHEAD else None

    def reader_is_free(self) -> bool:
        """Whether the one who decodes videos takes another frame."""
        return self.reader is not None and len(self.reader.tasks) < 2 * _AHEAD

    def free_decoder(self) -> Member | None:
        """The one who decodes on a GPU with the least to do; None: all have enough, or there is none."""
        member = min(self.decoders, key=lambda each: len(each.tasks), default=None)
        return member if member and len(member.tasks) < 2 * AT_ONCE else None

    def give(self, member: Member, kind: str, group: Group) -> None:
        """A task for a worker. If it is dead, that is noticed by its end, as for what it has already."""
        assert self._bays is not None
        if not member.tasks:
            self._bays.at(group.bay)[0] = -1
        member.tasks.append((kind, group))
        member.child.tell(group.task(kind))

    def answer(self, member: Member) -> tuple[Answer, Group] | None:
        """What a worker says; None: it is gone.

        Raises:
            Face3DError: It cannot go on, and no other could.
        """
        try:
            message = member.child.connection.recv()
        except (EOFError, ConnectionResetError):
            return None
        if isinstance(message, Broken):
            raise message.error
        _, group = member.tasks.popleft()
        return message, group

    def replace(self, member: Member, again: Callable[[str, Group], None]) -> str:
        """Another worker for one that died; what that was at is blamed, the rest of its tasks is not.

        Args:
            member: Who died.
            again: Takes back a task.

        Returns:
            What happened, in words.

        Raises:
            StoppedError: Workers die without being at anything.
        """
        assert self._bays is not None
        ending = member.child.ending()
        if member.gpu is not None:
            return self._replace_decoder(member, member.gpu, ending, again)
        culprit = ""
        if member.tasks:
            kind, group = member.tasks[0]
            at = int(self._bays.at(group.bay)[0])
            if kind == "frame" or 0 <= at < len(group.items):
                group.dead.add(max(at, 0))
                culprit = group.items[max(at, 0)].name
        if not culprit:
            self._deaths += 1
            if self._deaths > _MOST_DEATHS:
                raise StoppedError(f"workers die again and again: {ending}", run="dmesg | tail    # who kills them")
        for kind, group in reversed(member.tasks):
            again(kind, group)
        member.child.end(0)
        fresh = self._hire()
        assert self._setup is not None
        fresh.child.tell(self._setup)
        if member is self.reader:
            self.reader = fresh
        else:
            self.members[self.members.index(member)] = fresh
        return f"a worker died ({ending})" + (f" at {culprit}" if culprit else "")

    def end(self, patience_s: float) -> None:
        """Let them go."""
        for member in self.everyone:
            member.child.tell(None)
        for member in self.everyone:
            member.child.end(patience_s)

    def _replace_decoder(self, member: Member, gpu: int, ending: str, again: Callable[[str, Group], None]) -> str:
        """Its photos are decoded by workers; where it dies again and again, all are."""
        for kind, group in member.tasks:
            again(kind, group)
        member.child.end(0)
        self.decoders.remove(member)
        self._decoder_deaths += 1
        text = f"what decodes on {device_name(gpu)} died ({ending}), its photos are decoded on the CPU"
        if self._decoder_deaths > _MOST_DEATHS:
            return f"{text}, and so are all that come"
        assert self._setup is not None
        fresh = self._hire(gpu)
        fresh.child.tell(self._setup)
        self.decoders.append(fresh)
        return text

    def _hire(self, gpu: int | None = None) -> Member:
        self._numbers += 1
        if gpu is not None:
            name = f"face3d-trt photos on {device_name(gpu)}"
            return Member(self._numbers, Child(decode_photos, (self._memory, gpu), name, QUIET), gpu)
        name = f"face3d-trt worker {self._numbers}"
        return Member(self._numbers, Child(work, (self._memory, self._numbers), name, ONE_THREAD | QUIET))
