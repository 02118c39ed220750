"""Comparisons made by hand, and what a page of them says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.parity.batches import Batch
from face3d_trt.parity.compare import Comparison
from face3d_trt.parity.exhibits import Exhibit
from face3d_trt.parity.gather import FaceErrors, Worst
from face3d_trt.parity.limits import load_limits
from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.meaning_gate import face_rows, judge_faces
from face3d_trt.parity.page.write import PageOptions, page
from face3d_trt.parity.verdict import Check, Failure, ReferenceSource, Row, Verdict

if TYPE_CHECKING:
    from face3d_trt.decode import Decoder

TYPED, TITLE = "onnxruntime-typed", "ONNX Runtime, the typed int8 ONNX"
BATCH = Batch(0, 8, 224, 224)
VOID = {"meta", "link", "img", "br", "path"}
ROW = Row(
    candidate=TYPED,
    precision="int8",
    profile=0,
    batch=8,
    height=224,
    width=224,
    output="coeffs",
    group="identity",
    max_abs=0.3,
    mean_abs=0.01,
    relative=0.08,
    worst=0.1,
    worst_row=2,
    worst_image="a.jpg",
    cosine=0.9976,
    nan=0,
    inf=0,
    rows=16,
    scale=1.0,
    scale_kind="variation",
    allowed_relative=0.1,
    allowed_worst=0.3,
    allowed_cosine=0.99,
    gated=True,
    passed=True,
)


def made(
    errors: dict[str, Sequence[float]] | None = None,
    names: Sequence[str] = ("a.jpg", "b.jpg"),
    *,
    rows: Sequence[Row] = (ROW,),
    failures: Sequence[Failure] = (),
    exhibits: Sequence[Exhibit] = (),
    decoder: Decoder | None = None,
    plan: str = "engines/a.int8.plan",
    notes: Sequence[str] = (),
) -> Comparison:
    """A comparison of an int8 plan with the package's limits.

    Args:
        errors: By measure, a value for each picture.
        names: Of the pictures.
        rows: Figures of groups.
        failures: Beside those that follow from `errors`.
        exhibits: Worst pictures.
        decoder: The morphable model.
        plan: Path.
        notes: Of the verdict.
    """
    faces = [
        FaceErrors(TYPED, name, {measure: Worst(values[at], BATCH) for measure, values in (errors or {}).items()})
        for at, name in enumerate(names)
        if errors
    ]
    meaning, unlike = judge_faces(faces, {TYPED: "int8"}, {TYPED: TITLE}, load_limits())
    verdict = Verdict(
        plan=plan,
        precision="int8",
        model="model",
        reference=ReferenceSource(
            "ref.npz", "11" * 32, "22" * 32, "33" * 32, "2.13.0", "2026-11-30T00:00:00Z", "0.1.0"
        ),
        weights="learned",
        engine_ran=False,
        candidates={TYPED: TITLE} if rows else {},
        batches=("1, 8 at 224x224 (profile 0)",),
        pictures=tuple(names),
        skipped=(),
        origin="photos",
        checks=tuple(Check("plan", False, each.text) for each in failures if each.kind == "integrity"),
        rows=tuple(rows),
        meaning=tuple(meaning),
        faces=face_rows(faces),
        head_mm=decoder.head_mm if decoder is not None else None,
        failures=(*failures, *unlike),
        notes=tuple(notes),
        version="0.1.0",
    )
    return Comparison(verdict, tuple(exhibits), decoder)


def exhibit(reference: np.ndarray | None, answer: np.ndarray | None, image: str = "a.jpg") -> Exhibit:
    """A picture of nothing, with these coefficients (257,)."""
    crop = np.full((224, 224, 3), 128, np.uint8)
    return Exhibit(TYPED, image, crop, "shape_mean", 0.5, BATCH, {"shape_mean": 0.7}, reference, answer)


def odd(decoder: Decoder) -> Comparison:
    """Hundreds of pictures with the longest names that there are; one of them gave no numbers and cannot be drawn."""
    rng = np.random.default_rng(3)
    names = [f"{'Ä very_long&<b>name</b>' * 10}-{at:03}.jpg" for at in range(300)]
    errors = {
        name: list(np.abs(rng.normal(0.5, 0.2, 300)) + (measure.better == "high") * 30)
        for name, measure in MEASURES.items()
    }
    errors |= {name: list(1 - np.abs(rng.normal(0, 1e-3, 300))) for name in ("albedo_ssim", "shaded_ssim")}
    for name, measure in MEASURES.items():
        errors[name][7] = measure.worst
    sound = np.zeros(257, np.float32)
    broken = np.full(257, np.nan, np.float32)
    bad = replace(ROW, group="texture", relative=np.nan, worst=np.nan, cosine=np.nan, nan=257, passed=False)
    return made(
        errors,
        names,
        rows=(ROW, bad),
        failures=(Failure("non-finite", "coeffs texture: gives 257 NaN", TYPED, "coeffs", "texture"),),
        exhibits=(exhibit(sound, sound + 0.1, names[0]), exhibit(sound, broken, names[7])),
        decoder=decoder,
        plan=f"engines/{'deep/' * 20}{'x' * 200}.plan",
        notes=("word" * 200,),
    )


class Outline(HTMLParser):
    """The structure of a page: (tag, attributes) in order, headings with their text, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == [], "tags that are not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag in {"h1", "h2", "h3", "h4"}:
            self.headings.append((int(tag[1]), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.words.append(data)
        if any(tag in {"h1", "h2", "h3", "h4"} for tag in self._open):
            level, text = self.headings[-1]
            self.headings[-1] = (level, (text + data).strip())

    @property
    def text(self) -> str:
        """With single spaces."""
        return " ".join(" ".join(self.words).split())


def outline(*comparisons: Comparison, sensitivity: Path | None = None, command: str = "face3d-trt compare") -> Outline:
    """Of the page about these."""
    return Outline(page(PageOptions(Path("report.html"), sensitivity, command), comparisons))
