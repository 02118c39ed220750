"""The worst pictures of a plan: figures and captions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.page.faces import Drawn, draw
from face3d_trt.parity.page.words import percent, with_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from face3d_trt.parity.compare import Comparison
    from face3d_trt.parity.exhibits import Exhibit

CAPTIONS = ("shape_mean", "vertex_mean", "landmark_mean", "rotation", "albedo_psnr", "shaded_psnr")


@dataclass(frozen=True)
class Figure:
    """One picture of a row.

    Attributes:
        source: Data URI; None: it could not be drawn.
        caption: Below it.
        alt: What it shows, for those who do not see it.
    """

    source: str | None
    caption: str
    alt: str


@dataclass(frozen=True)
class FaceView:
    """One of the worst pictures."""

    image: str
    worst: str  # a sentence: in which measure, and how bad
    figures: tuple[Figure, ...]
    values: tuple[tuple[str, str], ...]  # label, value with its unit


@dataclass(frozen=True)
class Scale:
    """The colour bar of one kind of heat map."""

    title: str
    ticks: tuple[tuple[str, str], ...]  # position as CSS, label
    largest: str


@dataclass(frozen=True)
class Gallery:
    """All of them, the worst first; `why_no_mesh` says why there are photos only."""

    faces: tuple[FaceView, ...]
    scales: tuple[Scale, ...]
    why_no_mesh: str


def gallery_of(comparison: Comparison) -> Gallery:
    """Draw the worst pictures of a comparison."""
    drawn = draw(comparison.exhibits, comparison.decoder)
    titles = comparison.verdict.candidates
    views = (_view(exhibit, at, drawn, titles[exhibit.candidate]) for at, exhibit in enumerate(comparison.exhibits))
    scales = (
        Scale(
            title=each.title,
            ticks=tuple((each.axis.percent(value), label) for value, label in each.axis.labels),
            largest=f"{each.axis.high:g}",
        )
        for each in drawn.maps
    )
    return Gallery(tuple(views), tuple(scales), _why_no_mesh(comparison))


def _why_no_mesh(comparison: Comparison) -> str:
    if comparison.decoder is not None:
        return ""
    reference = comparison.verdict.reference.file
    if reference is None:
        return f"{comparison.verdict.model} has no morphable model, so that no mesh can be drawn."
    return (
        f"{reference} was saved without the morphable model (--no-bases), so that no mesh can be drawn. "
        "compare --save-reference without --no-bases puts it in."
    )


def _view(exhibit: Exhibit, at: int, drawn: Drawn, title: str) -> FaceView:
    return FaceView(
        image=exhibit.image,
        worst=_worst(exhibit),
        figures=tuple(_figures(exhibit, at, drawn, title)),
        values=tuple(
            (MEASURES[name].title, with_unit(exhibit.values[name], name)) for name in CAPTIONS if name in exhibit.values
        ),
    )


def _worst(exhibit: Exhibit) -> str:
    value = exhibit.values.get(exhibit.measure)
    what = MEASURES[exhibit.measure].title if value is not None else exhibit.measure
    figure = f", {with_unit(value, exhibit.measure)}" if value is not None else ""
    batch = f", at batch {exhibit.batch.size}" if exhibit.batch is not None else ""
    if exhibit.strain is None:
        return f"Worst in {what}{figure}{batch}. Nothing is limited."
    limit = "what one picture may have" if value is not None else "its limit"
    return f"Worst in {what}{figure}, {percent(exhibit.strain)} of {limit}{batch}."


def _figures(exhibit: Exhibit, at: int, drawn: Drawn, title: str) -> Iterator[Figure]:
    name = exhibit.image
    yield Figure(drawn.photos[at], "Photo, as the network sees it", f"Aligned photo {name}")
    if not drawn.maps:
        return
    for source, whose, of in (
        (drawn.references[at], "float32 PyTorch", "the reference"),
        (drawn.answers[at], title, title),
    ):
        missing = "" if source else ": not drawn, since a coefficient is not finite or far out of range"
        yield Figure(source, f"{whose[:1].upper()}{whose[1:]}{missing}", f"Mesh of {of} for {name}")
    for kind, maps in zip(("vertex", "shape"), drawn.maps, strict=True):
        figures = _extent(exhibit.values, kind)
        alt = f"Heat map of {maps.title[0].lower()}{maps.title[1:]} for {name}: {figures}"
        yield Figure(maps.pictures[at], f"{maps.title}: {figures}", alt)


def _extent(values: Mapping[str, float], kind: str) -> str:
    mean, largest = (with_unit(values.get(name, math.inf), name) for name in (f"{kind}_mean", f"{kind}_max"))
    return f"mean {mean}, at most {largest}"
