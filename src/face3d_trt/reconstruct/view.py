"""A run as somebody watches it: a table that moves in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from face3d_trt.reconstruct.stats import STAGES, Status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

_EVERY_S = 10.0
_FAILURES = 5  # that are named


class LiveView:
    """The table. A Reporter too, whose lines stand above it.

    Args:
        console: A terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._failed = 0

    def watch(self, status: Status) -> None:
        """Show how it stands."""
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        self._live.update(table(status))

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        """The first few pictures that failed, by name."""
        if event != "failed":
            return
        self._failed += 1
        if self._failed <= _FAILURES:
            self.stage(f"failed     {facts['name']}: {facts['reason']}")
        elif self._failed == _FAILURES + 1:
            self.stage("failed     more of them; every reason stands in the list of results")

    def stage(self, text: str) -> None:
        """One line."""
        self._console.print(printable(text), markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """One line in yellow."""
        self._console.print(f"warning: {printable(text)}", style="yellow", markup=False, soft_wrap=True)

    def track(self, items: Any, text: str, total: int | None = None) -> Any:
        """Hand on `items`."""
        return iter(items)

    def progress(self, text: str, done: int, total: int) -> None:
        """The table has that."""

    def close(self) -> None:
        """Take the table away."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class PlainView(LiveView):
    """Where nobody watches: a line every ten seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._last = time.monotonic()

    def watch(self, status: Status) -> None:
        """Say how it stands, now and then."""
        if time.monotonic() - self._last >= _EVERY_S:
            self._last = time.monotonic()
            self._console.print(sentence(status), markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Text in which names of files neither move a terminal's cursor nor stop its encoding."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def table(status: Status) -> Table:
    """How it stands, in a terminal's width."""
    from rich.table import Table

    found = Table.grid(padding=(0, 2))
    found.add_column(justify="right", style="bold")
    found.add_column()
    found.add_row("pictures", f"{status.finished} of {status.total}   {counted(status.counts)}")
    found.add_row("rate", f"{status.rate:,.1f}/s now, {status.mean_rate:,.1f}/s on average   {remaining(status)}")
    found.add_row("waiting", "   ".join(f"{name} {length}" for name, length in status.queues.items()))
    found.add_row("workers", f"{status.workers}, busy {status.busy['workers']:.0%}   {shares(status)}")
    found.add_row("engines", f"busy {status.busy['engines']:.0%}, batches of up to {status.batch}")
    for index, facts in status.gpus.items():
        found.add_row(f"GPU {index}", gpu_words(facts))
    found.add_row("limit", status.limit)
    for note in status.notes:
        found.add_row("note", note)
    return found


def sentence(status: Status) -> str:
    """How it stands, in one line."""
    return (
        f"{status.finished} of {status.total} pictures ({counted(status.counts)}), {status.rate:,.1f}/s, "
        f"{remaining(status)}; limit: {status.limit}"
    )


def counted(counts: dict[str, int]) -> str:
    """Pictures by outcome: `12 done, 3 failed`."""
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())) or "none yet"


def remaining(status: Status) -> str:
    """How long it still takes."""
    if status.left_s is None:
        return "time left not known yet"
    minutes, seconds = divmod(round(status.left_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} left"


def gpu_words(facts: dict[str, Any]) -> str:
    """What a GPU does: `97 % busy, 12.3 of 150 GB, 61 °C, 420 W`; what is not told is left out."""
    words = []
    if (busy := facts.get("utilization")) is not None:
        words.append(f"{busy:.0%} busy")
    if (used := facts.get("memory_used")) is not None and (total := facts.get("memory_total")):
        words.append(f"{used / 1e9:.1f} of {total / 1e9:.0f} GB")
    if (heat := facts.get("temperature_c")) is not None:
        words.append(f"{heat:.0f} °C")
    if (power := facts.get("watts")) is not None:
        words.append(f"{power:.0f} W")
    if facts.get("throttled"):
        words.append("throttled: " + ", ".join(facts["throttled"]))
    return ", ".join(words) or "tells nothing"


def shares(status: Status) -> str:
    """Where the workers' time goes: `detect 71 %, decode 9 %`."""
    total = sum(status.stage_s.values())
    if not total:
        return ""
    return ", ".join(f"{stage} {status.stage_s[stage] / total:.0%}" for stage in STAGES if status.stage_s[stage])
