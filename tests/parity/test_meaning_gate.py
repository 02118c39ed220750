"""From faces to rows: which batch and picture count, what 95 % means, and how a failure reads."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from face3d_trt.names import COEFFS, VERTEX
from face3d_trt.parity.batches import Batch
from face3d_trt.parity.gather import FaceErrors, Gatherer, Worst
from face3d_trt.parity.junit import to_junit
from face3d_trt.parity.limits import Limits, load_limits
from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.meaning_gate import judge_faces
from face3d_trt.parity.meaning_table import meaning_table
from face3d_trt.parity.truth import Truth
from face3d_trt.parity.verdict import Check, Failure, MeaningRow, ReferenceSource, Verdict

ONE, FOUR = Batch(0, 1, 224, 224), Batch(1, 4, 224, 224)
TITLES, INT8 = {"tensorrt": "the plan"}, {"tensorrt": "int8"}


def limits(**meaning: dict[str, float]) -> Limits:
    content = load_limits().model_dump()
    content["int8"]["meaning"] = meaning
    return Limits.model_validate(content)


def faces(measure: str, values: list[float]) -> list[FaceErrors]:
    return [FaceErrors("tensorrt", f"{i}.jpg", {measure: Worst(value, ONE)}) for i, value in enumerate(values)]


def judged(measure: str, values: list[float], **allowed: float) -> tuple[MeaningRow, list[Failure]]:
    (row,), failures = judge_faces(faces(measure, values), INT8, TITLES, limits(**{measure: allowed}))
    return row, failures


def test_median_p95_and_worst_of_twenty_one_pictures() -> None:
    row, failures = judged("rotation", [i / 10 for i in range(21)], median=1.0, p95=1.9, worst=2.0)
    assert (row.median, row.p95, row.worst, row.worst_image) == (1.0, pytest.approx(1.9), 2.0, "20.jpg")
    assert (row.passed, failures) == (True, [])
    row, failures = judged("albedo_psnr", [30.0 + i for i in range(21)], p95=31.0, worst=30.0)
    assert (row.median, row.p95, row.worst, row.worst_image) == (40.0, 31.0, 30.0, "0.jpg")
    assert failures == []


@pytest.mark.parametrize(
    ("allowed", "text"),
    [
        ({"worst": 1.9}, "rotation: the plan is 2 deg in one picture, allowed 1.9 deg; worst: 20.jpg at batch 1"),
        ({"p95": 1.8}, "rotation: the plan is 1.9 deg or more in 5 % of the pictures, allowed 1.8 deg"),
        ({"median": 0.9}, "rotation: the plan is 1 deg or more in half of the pictures, allowed 0.9 deg"),
    ],
)
def test_each_limit_fails_in_its_own_words(allowed: dict[str, float], text: str) -> None:
    row, (failure,) = judged("rotation", [i / 10 for i in range(21)], **allowed)
    assert not row.passed
    assert failure.text.startswith(text)
    assert (failure.kind, failure.group, failure.image) == ("meaning", "rotation", "20.jpg")


def test_less_is_worse_where_more_is_better() -> None:
    _, (failure,) = judged("shaded_ssim", [0.9, 0.99], worst=0.95)
    assert "shaded, SSIM: the plan is 0.9 in one picture, allowed 0.95; worst: 0.jpg" in failure.text


def test_a_twentieth_of_few_pictures_is_no_picture() -> None:
    row, failures = judged("rotation", [0.1] * 18 + [5.0], p95=1.0, worst=6.0)
    assert (row.allowed_p95, failures) == (None, [])
    assert judged("rotation", [0.1] * 18 + [5.0] * 2, p95=1.0, worst=6.0)[1]


def test_what_is_not_finite_fails_and_what_has_no_limit_is_shown() -> None:
    row, (failure,) = judged("rotation", [0.1] * 30 + [math.inf], worst=100)
    assert row.worst_image == failure.image == "30.jpg"
    row, failures = judged("rotation", [1e9])
    assert (row.gated, row.passed, failures) == (False, True, [])


def test_ungated_precisions_are_shown() -> None:
    (row,), failures = judge_faces(faces("rotation", [99.0]), INT8, TITLES, load_limits(), frozenset({"int8"}))  # type: ignore[arg-type]
    assert (row.worst, row.gated, row.passed, failures) == (99.0, False, True, [])


class Distance:
    """Takes the first coefficient for an error; counts what it is given."""

    def __init__(self) -> None:
        self.rows = 0

    def measure(self, reference: np.ndarray, candidate: np.ndarray) -> dict[str, np.ndarray]:
        self.rows += len(candidate)
        return {"rotation": np.abs(candidate - reference)[:, 0], "albedo_psnr": 50 - candidate[:, 0]}


class Zeros:
    names = ("a.jpg", "b.jpg")

    def at(self, height: int, width: int) -> Truth:
        return Truth(np.zeros((2, height, width, 3), np.uint8), {COEFFS: np.zeros((2, 257), np.float32)}, {}, {})


def coeffs(*first: float) -> dict[str, np.ndarray]:
    rows = np.zeros((len(first), 257), np.float32)
    rows[:, 0] = first
    return {COEFFS: rows}


def test_the_worst_batch_of_a_picture_counts_and_the_same_answer_is_measured_once() -> None:
    meter = Distance()
    gatherer = Gatherer(meter, Zeros.names)  # type: ignore[arg-type]
    gatherer.add("tensorrt", ONE, [0], coeffs(0), coeffs(1.0))
    gatherer.add("tensorrt", FOUR, [0, 1, 0, 1], coeffs(0, 0, 0, 0), coeffs(1.0, 2.0, 3.0, 2.0))
    first, second = gatherer.errors(Zeros())  # type: ignore[arg-type]
    assert (first.image, first.worst["rotation"]) == ("a.jpg", Worst(3.0, FOUR))
    assert first.worst["albedo_psnr"].value == 47.0
    assert (second.image, second.worst["rotation"]) == ("b.jpg", Worst(2.0, FOUR))
    assert meter.rows == 3


def test_the_vertex_output_is_measured_without_a_morphable_model() -> None:
    gatherer = Gatherer(None, Zeros.names)
    expected = {VERTEX: np.zeros((2, 100, 3), np.float32)}
    found = {VERTEX: expected[VERTEX].copy()}
    found[VERTEX][1, 7] = (0.03, 0.0, 0.04)  # one vertex, 5 mm off
    gatherer.add("tensorrt", FOUR, [0, 1], expected, found)
    first, second = gatherer.errors(Zeros())  # type: ignore[arg-type]
    assert first.worst["mesh_max"].value == 0
    assert second.worst["mesh_max"].value == pytest.approx(5, rel=1e-6)
    assert second.worst["mesh_mean"].value == pytest.approx(0.05, rel=1e-6)


def verdict(meaning: list[MeaningRow], failures: list[Failure]) -> Verdict:
    return Verdict(
        plan="a.plan",
        precision="int8",
        model="model",
        reference=ReferenceSource(None, None, "0", "0", "2", None, "0"),
        weights="learned",
        engine_ran=True,
        candidates=TITLES,
        batches=(),
        pictures=("0.jpg",),
        skipped=(),
        origin="",
        checks=(Check("plan", True, "fine"), Check("typed ONNX", False, "it was changed")),
        rows=(),
        meaning=tuple(meaning),
        faces=(),
        head_mm=None,
        failures=tuple(failures),
        notes=(),
        version="0",
    )


def test_junit_has_a_case_for_every_row_and_keeps_to_xml() -> None:
    passed, _ = judged("rotation", [0.1], worst=1)
    shown, _ = judged("light_grey", [9.0])
    failed, why = judged("translation", [9.0], worst=1)
    broken = Failure("error", "the plan cannot run: <a & b> \x1b[31m\x00", "tensorrt", batch=4)
    text = to_junit([verdict([passed, shown, failed], [*why, broken])])
    (suite,) = ElementTree.fromstring(text)
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {
        "plan": [],
        "typed ONNX": ["failure"],
        "rotation": [],
        "light on face": ["skipped"],
        "translation": ["failure"],
        "error": ["failure"],
    }
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "3", "1")


def test_the_widest_table_fits_eighty_columns() -> None:
    allowed = {"median": 0.9999, "p95": 0.9998, "worst": 0.9995}
    found = [FaceErrors("tensorrt", f"{i}", {name: Worst(-0.98765, ONE) for name in MEASURES}) for i in range(20)]
    rows, _ = judge_faces(found, INT8, TITLES, limits(**dict.fromkeys(MEASURES, allowed)))  # type: ignore[arg-type]
    console = Console(width=80)
    with console.capture() as capture:
        console.print(meaning_table("the plan", rows))
    text = capture.get()
    assert "…" not in text
    assert text.count("FAIL") == 4  # PSNR and SSIM, of which more would be better
    assert all(measure.label in text for measure in MEASURES.values())
