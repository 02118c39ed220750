"""How fast it goes, and what holds it up."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

_WINDOW_S = 10.0  # over which the present rate is taken
STAGES = ("decode", "detect", "products", "write")  # of the workers, in the order of the data


@dataclass(frozen=True)
class Status:
    """What a run is doing now.

    Attributes:
        counts: Pictures by outcome: done, failed; earlier runs included.
        total: Pictures to do; frames of videos not counted before they are there.
        seconds: Since the start.
        rate: Images a second, lately.
        mean_rate: Images a second, since the first.
        queues: What waits: groups of pictures for workers ("prepare", "products"), crops for an engine ("infer"),
            groups for one before them ("order").
        stage_s: Seconds that workers spent, by stage.
        workers: How many there are.
        busy: Share of their time that workers and engines had something to do; and "decoders", where GPUs decode.
        limit: What holds it up, in words.
        batch: The most crops of a batch now.
        gpus: By index, what NVML says.
        notes: What the user should not miss.
    """

    counts: dict[str, int]
    total: int
    seconds: float
    rate: float
    mean_rate: float
    queues: dict[str, int]
    stage_s: dict[str, float]
    workers: int
    busy: dict[str, float]
    limit: str
    batch: int
    gpus: dict[int, dict[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def finished(self) -> int:
        """Pictures that have a line in the list of results."""
        return sum(self.counts.values())

    @property
    def left_s(self) -> float | None:
        """Seconds to go; None: not known yet."""
        rate = self.rate or self.mean_rate
        return max(0, self.total - self.finished) / rate if rate else None


class Stats:
    """Counts, from which a Status is made.

    Args:
        workers: How many there are.
        engines: Likewise.
        now: Seconds of a monotonic clock.
        decoders: Processes that decode photos on GPUs.
    """

    def __init__(self, workers: int, engines: int, now: float, decoders: int = 0) -> None:
        self._workers, self._engines, self._decoders, self._start = workers, engines, decoders, now
        self.counts: Counter[str] = Counter()
        self.stage_s: dict[str, float] = dict.fromkeys(STAGES, 0.0)
        self.engine_s = self.decoder_s = 0.0
        self._begun: float | None = None
        self._here = 0
        self._lately: deque[tuple[float, int]] = deque()

    def began(self, now: float) -> None:
        """The first picture is on its way: what was before is not part of the rate."""
        if self._begun is None:
            self._begun = now

    def finished(self, counts: dict[str, int], now: float) -> None:
        """Pictures that have their result."""
        self.counts.update(counts)
        self._here += sum(counts.values())
        self._lately.append((now, self._here))
        while self._lately[0][0] < now - _WINDOW_S:
            self._lately.popleft()

    @property
    def here(self) -> int:
        """Pictures of this run alone."""
        return self._here

    def working_s(self, now: float) -> float:
        """Seconds since the first picture."""
        return max(now - self._begun, 1e-9) if self._begun is not None else 0.0

    def rate(self, now: float) -> float:
        """Images a second over the last ten seconds."""
        if len(self._lately) < 2 or self._lately[-1][0] < now - _WINDOW_S:
            return 0.0
        span = now - self._lately[0][0]
        return (self._lately[-1][1] - self._lately[0][1]) / span if span > 0 else 0.0

    def busy(self, now: float) -> dict[str, float]:
        """Share of the time that workers and engines had something to do, since the first picture."""
        working = self.working_s(now)
        if not working:
            return {"workers": 0.0, "engines": 0.0}
        busy = {
            "workers": min(1.0, sum(self.stage_s.values()) / (working * self._workers)),
            "engines": min(1.0, self.engine_s / (working * self._engines)),
        }
        if self._decoders:
            busy["decoders"] = min(1.0, self.decoder_s / (working * self._decoders))
        return busy

    def status(self, now: float, total: int, queues: dict[str, int], batch: int, notes: tuple[str, ...] = ()) -> Status:
        """What there is to show."""
        busy = self.busy(now)
        working = self.working_s(now)
        return Status(
            counts=dict(self.counts),
            total=total,
            seconds=now - self._start,
            rate=self.rate(now),
            mean_rate=self._here / working if working else 0.0,
            queues=queues,
            stage_s={stage: self.stage_s[stage] for stage in STAGES},
            workers=self._workers,
            busy=busy,
            limit=limit(self.stage_s, busy, self._workers),
            batch=batch,
            notes=notes,
        )


def limit(stage_s: dict[str, float], busy: dict[str, float], workers: int) -> str:
    """What holds a run up: who is busiest, and with what."""
    if not any(stage_s.values()):
        return "none yet"
    if busy.get("decoders", 0.0) > max(busy["engines"], busy["workers"]):
        return f"decode on the GPU (busy {busy['decoders']:.0%}, workers {busy['workers']:.0%})"
    if busy["engines"] >= busy["workers"]:
        return f"infer (engines busy {busy['engines']:.0%}, workers {busy['workers']:.0%})"
    total = sum(stage_s.values())
    stage, most = max(stage_s.items(), key=lambda pair: pair[1])
    share = most / total if total else 0.0
    return f"{stage} ({share:.0%} of {workers} workers, busy {busy['workers']:.0%}; engines {busy['engines']:.0%})"
