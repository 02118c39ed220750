"""What is to be done: groups of pictures, from the sources to their lines in the list of results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from face3d_trt.reconstruct.messages import Run, Task
from face3d_trt.reconstruct.results import Failure, failed, line
from face3d_trt.reconstruct.sources import Item


@dataclass(eq=False)
class Group:
    """Pictures that go through the stages together.

    Attributes:
        number: Its place in the order of the results.
        items: The pictures.
        video: Where its one item is a frame.
        bay: Where its pixels are.
        dead: Indices of items that killed a worker.
        photo: See Task.
        found: See Task.
        rows: Crops that the engines still have to infer.
    """

    number: int
    items: tuple[Item, ...]
    video: Video | None = None
    bay: int = -1
    dead: set[int] = field(default_factory=set)
    photo: tuple[int, int, float] | None = None
    found: bytes = b""
    runs: tuple[Run, ...] = ()
    rows: int = 0

    def task(self, kind: str) -> Task:
        """What a worker is told."""
        assert kind in ("frame", "photo", "prepare", "finish")
        return Task(kind, self.number, self.bay, self.items, frozenset(self.dead), self.photo, self.found)  # type: ignore[arg-type]


@dataclass(eq=False)
class Video:
    """A video whose frames are being fed.

    Attributes:
        item: The file.
        ended: Whether its last frame is known.
        frames: How many it has, once that is known.
    """

    item: Item
    ended: bool = False
    frames: int = 0

    def last_line(self, number: int, announced: int, problem: str) -> bytes:
        """The video's own record, which stands behind those of its frames.

        Args:
            number: Of the first frame that could not be had.
            announced: How many frames the file says that it has.
            problem: Why there are no more, where that is not the end.
        """
        self.ended, self.frames = True, number
        if problem or not number:
            reason = problem or f"{self.item.path} holds no frame that can be read"
            return line(failed(self.item.name, Failure("decode", reason), frames=number))
        return line({"name": self.item.name, "status": "video", "frames": number, "announced": announced})


class Feeder:
    """Hands out groups in the order of the sources, leaving out what is done.

    Args:
        items: All of them.
        done: Names of what an earlier run has done.
        size: Pictures in a group.
    """

    def __init__(self, items: Sequence[Item], done: frozenset[str], size: int) -> None:
        self._groups = self._all(items, done, size)
        self._number = 0
        self._ahead: Group | None = None
        self.exhausted = False
        self.cut = False

    def peek(self) -> Group | None:
        """The next group, which stays the next; None: there is none."""
        if self._ahead is None and not self.exhausted:
            self._ahead = next(self._groups, None)
            self.exhausted = self._ahead is None
        return self._ahead

    def pop(self) -> Group:
        """The next group, which is then handed out."""
        group = self.peek()
        assert group is not None
        self._ahead = None
        return group

    def stop(self) -> None:
        """Hand out no more; `cut` says from then on whether something was left."""
        self.cut = self.cut or self.peek() is not None
        self._groups, self._ahead, self.exhausted = iter(()), None, True

    def _all(self, items: Sequence[Item], done: frozenset[str], size: int) -> Iterator[Group]:
        some: list[Item] = []
        for item in items:
            alone = item.kind in ("rows", "video")
            if some and (alone or len(some) == size):
                yield self._group(tuple(some))
                some = []
            if item.name in done:
                continue
            if item.kind == "video":
                yield from self._frames(item, done)
            elif alone:
                yield self._group((item,))
            else:
                some.append(item)
        if some:
            yield self._group(tuple(some))

    def _frames(self, item: Item, done: frozenset[str]) -> Iterator[Group]:
        video, number = Video(item), 0
        while not video.ended:
            name = f"{item.name}/{number:06}"
            if name not in done:
                yield self._group((Item(name, item.path, "video", number),), video)
            number += 1

    def _group(self, items: tuple[Item, ...], video: Video | None = None) -> Group:
        self._number += 1
        return Group(self._number - 1, items, video)


class Waiting:
    """Groups that wait for a worker: those that are further on go first, so that what was begun is ended."""

    def __init__(self) -> None:
        self.frames: deque[Group] = deque()
        self.prepare: deque[Group] = deque()
        self.finish: deque[Group] = deque()

    def next(self) -> tuple[str, Group] | None:
        """The next for any worker."""
        if self.finish:
            return "finish", self.finish.popleft()
        if self.prepare:
            return "prepare", self.prepare.popleft()
        return None

    def again(self, kind: str, group: Group) -> None:
        """Back to the front: the worker that had it died."""
        {"frame": self.frames, "prepare": self.prepare, "finish": self.finish}[kind].appendleft(group)
