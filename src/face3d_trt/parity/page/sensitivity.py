"""The layers of a plan by how much they cost, as `bisect` measured them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, ValidationError

from face3d_trt.errors import PlanError, UsageError
from face3d_trt.parity.page.words import percent
from face3d_trt.records import Manifest, Record, manifest_path

SHOWN = 20  # nodes
_LARGEST = 8 << 20  # bytes that are read of a file nobody named


class _Part(Record):
    """Only what the page shows; whatever else is in the file may change."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Kept(_Part):
    """A node that has to stay in higher precision."""

    node: str


class Node(_Part):
    """One node; see `bisect` for what the numbers are."""

    node: str
    precision: str
    loss: float | None  # over the limit; None: not finite
    group: str
    share: float  # of the multiply-adds
    damage: str | None = None


class Layers(_Part):
    """What `bisect` wrote."""

    schema_version: Literal[1]
    typed: str
    typed_sha256: str
    pictures: tuple[str, ...]
    channels: str
    passed_before: bool
    passed: bool
    worst_before: str
    worst: str
    keep: tuple[Kept, ...]
    kept_before: tuple[str, ...] = ()
    build: str = ""
    ranking: tuple[Node, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class NodeLine:
    """One node of the table."""

    name: str
    precision: str
    loss: float | None  # of the limit; None: not finite, or not measured
    bar: float  # of the largest loss shown, in per cent
    group: str
    share: str
    kept: bool
    damage: str


@dataclass(frozen=True)
class Sensitivity:
    """The section on layers.

    Attributes:
        file: Where it comes from.
        sentences: What was found.
        lines: The nodes that cost most.
        more: How many are not shown.
        build: The command that builds the plan with what has to stay higher; empty where nothing has to.
        notes: Of `bisect`.
    """

    file: str
    sentences: tuple[str, ...]
    lines: tuple[NodeLine, ...]
    more: int
    build: str
    notes: tuple[str, ...]


def read_layers(path: Path) -> Layers:
    """Read what `bisect` wrote.

    Raises:
        UsageError: The file cannot be read, or is something else.
    """
    try:
        return Layers.model_validate_json(path.read_bytes())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"is not what bisect writes: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
    raise UsageError(
        f"--sensitivity {path} {problem}",
        allowed="a file that bisect wrote",
        run=f"face3d-trt bisect --plan PLAN -o {path}",
    )


def sensitivity_of(plan: str, named: Path | None) -> Sensitivity | None:
    """What is known of the layers of a plan.

    Args:
        plan: Its path.
        named: The file that the user named; None: any file in the plan's folder that is of its typed graph, or of the
            one that this was before nodes were kept.

    Raises:
        UsageError: The named file cannot be read.
    """
    try:
        manifest = Manifest.read(manifest_path(Path(plan)))
    except PlanError:
        manifest = None
    if named is not None:
        layers = read_layers(named)
        return _about(manifest, named, layers) or _of_another(named, layers)
    every = [(path, _readable(path)) for path in sorted(Path(plan).parent.glob("*.json"))]
    mine = [(path, layers) for path, layers in every if layers is not None and _about(manifest, path, layers)]
    mine.sort(key=lambda each: manifest is None or each[1].typed_sha256 != manifest.typed_sha256)
    return _about(manifest, *mine[0]) if mine else None


def _about(manifest: Manifest | None, path: Path, layers: Layers) -> Sensitivity | None:
    """The section, if `layers` are of the plan's typed graph, as it is or as it was before nodes were kept."""
    if manifest is None:
        return None
    if layers.typed_sha256 == manifest.typed_sha256:
        build = layers.build or f"{manifest.command} --keep {shlex.quote(str(path))}"
        wanted = {each.node for each in layers.keep} - set(layers.kept_before)
        return _section(path, layers, _sentences(layers), wanted, build if wanted else "")
    if layers.typed_sha256 == manifest.plain_sha256:
        kept = [each.node for each in manifest.kept if each.asked]
        return _section(path, layers, _of_the_kept(layers, kept), kept, "")
    return None


def _readable(path: Path) -> Layers | None:
    """What `bisect` wrote, or None: nobody said that it did."""
    try:
        return read_layers(path) if path.stat().st_size <= _LARGEST else None
    except (UsageError, OSError):
        return None


def _of_another(path: Path, layers: Layers) -> Sensitivity:
    text = f"{path} is of another typed graph ({layers.typed}), not of this plan's: it says nothing here."
    return Sensitivity(str(path), (text,), (), 0, "", ())


def _section(path: Path, layers: Layers, sentences: Iterable[str], kept: Collection[str], build: str) -> Sensitivity:
    shown = layers.ranking[:SHOWN]
    largest = max((node.loss for node in shown if node.loss is not None), default=0.0)
    return Sensitivity(
        file=str(path),
        sentences=tuple(sentences),
        lines=tuple(_line(node, node.node in kept, largest) for node in shown),
        more=len(layers.ranking) - len(shown),
        build=build,
        notes=layers.notes,
    )


def _of_the_kept(layers: Layers, kept: Sequence[str]) -> list[str]:
    """Of the graph that a plan's typed graph was before nodes of it were kept."""
    nodes, was = ("1 node", "was") if len(kept) == 1 else (f"{len(kept)} nodes", "were")
    found = [
        _ranked(layers),
        f"That was before {nodes} of this plan's graph {was} kept in higher precision: {', '.join(kept)}.",
        f"Before: {layers.worst_before}.",
    ]
    if {each.node for each in layers.keep} == set(kept):
        found.append(f"With them: {layers.worst}.")
    return found


def _ranked(layers: Layers) -> str:
    pictures = f"{len(layers.pictures)} {'picture' if len(layers.pictures) == 1 else 'pictures'}"
    return f"{len(layers.ranking)} nodes were ranked; the gate stood on {pictures}."


def _sentences(layers: Layers) -> list[str]:
    found = [_ranked(layers)]
    if layers.kept_before:
        found.append(f"Kept in higher precision already: {', '.join(layers.kept_before)}.")
    if layers.channels != "RGB":
        found.append(f"The typed graph reads the colours as {layers.channels}; it should read RGB.")
    if damaged := [node for node in layers.ranking if node.damage]:
        found.append(f"Damaged: {', '.join(node.node for node in damaged)}. Of the first: {damaged[0].damage}.")
    if layers.passed_before:
        more = "more " if layers.kept_before else ""
        found.append(f"The gate holds with nothing {more}kept in higher precision.")
    elif layers.passed:
        count, more = len(layers.keep) - len(layers.kept_before), " more" if layers.kept_before else ""
        nodes = f"1{more} node stays" if count == 1 else f"{count}{more} nodes stay"
        found.append(f"The gate holds once {nodes} in higher precision. Before: {layers.worst_before}.")
    else:
        found.append(f"The gate does not hold, whatever was kept. Furthest from its limit: {layers.worst}.")
    return found


def _line(node: Node, kept: bool, largest: float) -> NodeLine:
    return NodeLine(
        name=node.node,
        precision=node.precision,
        loss=node.loss,
        bar=100 * node.loss / largest if node.loss and largest else 0.0,
        group=node.group,
        share=percent(node.share) if node.share else "0 %",
        kept=kept,
        damage=node.damage or "",
    )
