"""What a report says, in the order in which somebody who has to choose wants to know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.bench.machines import machine_facts, slug
from face3d_trt.bench.merge import group_title, merge
from face3d_trt.bench.noise import LIMIT, noise_of
from face3d_trt.bench.page import costs, distance, speed
from face3d_trt.bench.page.series import MODE_TITLES, MODE_WORDS, MODES, Named, named, of_mode
from face3d_trt.bench.page.words import percent, shown_command, significant, times
from face3d_trt.bench.ratios import best_torch, speed_up

if TYPE_CHECKING:
    from face3d_trt.bench.merge import Group
    from face3d_trt.bench.page.svg import Plot
    from face3d_trt.bench.page.table import Table
    from face3d_trt.bench.records import BenchFile, Mode

_CONTEXT_WORDS = {"engine": "engine-only", "host": "host-to-host"}


@dataclass(frozen=True)
class Headline:
    """A figure of a card."""

    name: str
    value: str
    unit: str
    note: str


@dataclass(frozen=True)
class Block:
    """A part of a section.

    Attributes:
        title: Its heading.
        words: One paragraph before its tables; may be empty.
        tables: Its tables.
        folded: Whether a page may show it on demand only.
    """

    title: str
    words: str
    tables: tuple[Table, ...]
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """One machine, one model, one size.

    Attributes:
        anchor: For links and file names.
        title: Its heading.
        headlines: The figures to begin with.
        sentences: What they mean.
        noise: Whether the runs agree.
        noisy: Whether they do not.
        plots: Its plots.
        blocks: Its tables.
        facts: Machine, model, versions, commands.
    """

    anchor: str
    title: str
    headlines: tuple[Headline, ...]
    sentences: tuple[str, ...]
    noise: str
    noisy: bool
    plots: tuple[Plot, ...]
    blocks: tuple[Block, ...]
    facts: tuple[tuple[str, str], ...]


def sections(
    files: Sequence[BenchFile], *, limit_ms: float | None = None, draw: bool = True, any_weights: bool = False
) -> tuple[Section, ...]:
    """What to say of some runs.

    Args:
        files: At least one.
        limit_ms: A latency that 99 of 100 calls are to keep; None: no batch is recommended.
        draw: Whether plots are wanted.
        any_weights: Whether runs of one network with other weights belong together.

    Raises:
        MissingError: Plots are wanted and matplotlib is not installed.
    """
    found: list[Section] = []
    for group in merge(files, any_weights=any_weights):
        size = "" if (group.height, group.width) == (224, 224) else f"-{group.height}x{group.width}"
        kind = "" if group.outputs == "coeffs" else f"-{group.outputs}"
        anchor = f"{slug(group.machine.gpu or group.machine.cpu)}{size}{kind}"
        taken = sum(each.anchor.startswith(anchor) for each in found)
        found.append(_section(group, f"{anchor}-{taken + 1}" if taken else anchor, limit_ms, draw=draw))
    return tuple(found)


def _section(group: Group, anchor: str, limit_ms: float | None, *, draw: bool) -> Section:
    from face3d_trt.bench.page.plots import plots

    every = named(group)
    noise, noisy = noise_words(group, every)
    return Section(
        anchor=anchor,
        title=group_title(group),
        headlines=tuple(_headlines(every)),
        sentences=tuple(_sentences(every, limit_ms)),
        noise=noise,
        noisy=noisy,
        plots=plots(every) if draw else (),
        blocks=tuple(_blocks(group, every, limit_ms)),
        facts=tuple(_facts(group)),
    )


def _headlines(every: Sequence[Named]) -> Iterator[Headline]:
    for mode in MODES:
        best = fastest(of_mode(every, mode))
        if best is not None:
            line, batch, rate = best
            yield Headline(
                f"{MODE_TITLES[mode]}, at best", significant(rate), "images/s", f"{line.name}, batch {batch}"
            )
    for mode in MODES:
        single = [
            (row.latency.p50, each.name)
            for each in of_mode(every, mode)
            for row in each.rows
            if row.batch == 1 and row.latency is not None
        ]
        if single:
            p50, name = min(single)
            yield Headline(f"{MODE_TITLES[mode]}, a single picture", significant(p50), "ms", name)


def fastest(lines: Sequence[Named]) -> tuple[Named, int, float] | None:
    """The series with the highest rate, its batch and its rate."""
    rates = [(row.rate.images_per_second, row.batch, each) for each in lines for row in each.rows if row.rate]
    if not rates:
        return None
    rate, batch, line = max(rates, key=lambda found: found[0])
    return line, batch, rate


def _sentences(every: Sequence[Named], limit_ms: float | None) -> Iterator[str]:
    for mode in MODES:
        lines = of_mode(every, mode)
        best = fastest(lines)
        if best is None:
            continue
        line, batch, rate = best
        text = f"{MODE_TITLES[mode]}, the fastest is {line.name}: {significant(rate)} images/s at batch {batch}"
        yield f"{text}{_against(lines, line, batch)}."
        if limit_ms is not None:
            yield _recommended(lines, mode, limit_ms)
    rates = [row.rate for each in every for row in each.rows if row.rate]
    if restless := [rate.spread for rate in rates if not rate.settled]:
        yield (
            f"{len(restless)} of {len(rates)} rows never settled: windows of theirs differ by up to "
            f"{percent(max(restless))}. Something else wanted this machine, or its clocks moved."
        )


def _against(lines: Sequence[Named], line: Named, batch: int) -> str:
    """`, 2.65 times the best PyTorch there (…)`."""
    rows = [row for each in lines for row in each.rows]
    row = line.by_batch[batch]
    rival = best_torch(rows, row.mode, batch, row.input)
    if rival is None:
        return "; PyTorch was not measured there"
    if rival.row is row:
        return ""
    name = next(each.name for each in lines if rival.row in each.rows)
    return f", {times(speed_up(row, rival.row))} times the best PyTorch row there ({name})"


def _recommended(lines: Sequence[Named], mode: Mode, limit_ms: float) -> str:
    """The series and batch with the highest rate among those that keep the limit."""
    kept = [(each.by_batch[batch], each) for each in lines if (batch := each.within(limit_ms)) is not None]
    timed = [(row.rate.images_per_second, row, each) for row, each in kept if row.rate is not None]
    if not timed:
        return f"{MODE_TITLES[mode]}, nothing keeps {limit_ms:g} ms in 99 of 100 calls."
    rate, row, line = max(timed, key=lambda found: found[0])
    p99 = significant(row.latency.p99) if row.latency else ""
    return (
        f"{MODE_TITLES[mode]}, for {limit_ms:g} ms {line.name}, batch {row.batch}: {significant(rate)} images/s, "
        f"99 of 100 calls within {p99} ms."
    )


def noise_words(group: Group, every: Sequence[Named]) -> tuple[str, bool]:
    """Whether the runs of a group agree, in a sentence, and whether they do not."""
    found = noise_of(group)
    if found.worst is None:
        return "Each row was run once: how far two runs differ on this machine was not measured.", False
    worst = found.worst
    name = next(each.name for each in every if worst.row in each.rows)
    what = f"{name}, batch {worst.row.batch}, {_CONTEXT_WORDS[worst.row.mode]}"
    kind = "every ratio" if worst.base is not None else "every time"
    if not found.noisy:
        text = f"Runs agree within {percent(worst.spread)} in {kind} ({len(found.doubts)} measured more than once)."
        return f"{text} They differ most in {what}.", False
    return (
        f"The machine was noisy: {len(found.over)} of {len(found.doubts)} ratios differ by more than {percent(LIMIT)} "
        f"between runs, by up to {percent(worst.spread)} ({what}). Figures are medians of the runs."
    ), True


def _blocks(group: Group, every: Sequence[Named], limit_ms: float | None) -> Iterator[Block]:
    rows = [row for each in every for row in each.rows]
    for mode in MODES:
        lines = of_mode(every, mode)
        if not lines:
            continue
        own = [row for each in lines for row in each.rows]
        wanted = (speed.throughput(lines, limit_ms), speed.against_best(own, lines), speed.against_float32(own, lines))
        yield from _block(MODE_TITLES[mode], MODE_WORDS[mode], (*wanted, *speed.latencies(lines)))
    against = "FP16" if any(row.arithmetic == "fp16" for row in rows) else "FP32"
    yield from _block(f"INT8 against {against}", "", (speed.int8_table(rows),))
    first = next((lines for mode in MODES if (lines := of_mode(every, mode))), ())
    yield from _block("Memory", "", costs.memory(first))
    yield from _block("Energy and setup", "", (costs.energy(first), costs.setup(first)))
    if any(row.backend.startswith("torch") for row in rows) and group.machine.gpu is not None:
        yield Block("What articles claim", "", (distance.claims_table(rows),))
    ceilings = distance.ceilings_table(group.ceilings, group.work)
    roofs = [distance.roofline(group, lines) for mode in MODES if (lines := of_mode(every, mode))]
    words = "" if ceilings is not None else "The ceilings of this machine were not measured."
    yield from _block("Distance to the ceilings", words, (ceilings, *roofs))
    layers = tuple(distance.layer_tables(group))
    yield from _block("Which layers hold the rest", distance.layers_words(group), layers, folded=True)
    yield from _block("Skipped", "", (costs.skipped(every),))
    full = [costs.every_row(of_mode(every, mode), MODE_TITLES[mode].lower()) for mode in MODES]
    yield from _block("Every row", "", full, folded=True)


def _block(title: str, words: str, tables: Sequence[Table | None], *, folded: bool = False) -> Iterator[Block]:
    known = tuple(table for table in tables if table is not None)
    if known:
        yield Block(title, words, known, folded)


def _facts(group: Group) -> Iterator[tuple[str, str]]:
    yield "Machine", machine_facts(group.machine)
    checkpoint = f", checkpoint {group.model_sha256[:12]}" if group.model_sha256 else ""
    yield "Model", f"{group.model}{checkpoint}"
    for file in group.files:
        packages = ", ".join(f"{name} {version}" for name, version in file.machine.packages.items())
        yield f"Run of {file.created[:16].replace('T', ' ')}", f"{packages}; {file.seconds:.0f} s"
        yield "by", shown_command(file.command)
    for note in group.notes:
        yield "Note", note
