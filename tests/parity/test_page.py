"""The report: what it says, how it is built, and that nothing odd breaks it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.parity.pages import ROW, TITLE, Outline, exhibit, made, odd, outline

from face3d_trt.errors import UsageError
from face3d_trt.parity.compare import CompareOptions, compare, comparisons
from face3d_trt.parity.page.sensitivity import read_layers
from face3d_trt.parity.page.write import PageOptions, write_page
from face3d_trt.parity.verdict import Failure
from face3d_trt.records import Manifest, manifest_path

if TYPE_CHECKING:
    from face3d_trt.decode import Decoder

FP16, INT8 = "face3d_resnet50.fp16.plan", "face3d_resnet50.int8.plan"


@pytest.fixture(scope="module")
def report(engines: Path) -> Path:
    """As a user makes it: both plans, on the package's sample faces."""
    command = [sys.executable, "-m", "face3d_trt", "compare", "--report", "out/report.html", "--json", "all.json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=engines.parent)
    assert result.returncode in (0, 1), result.stderr
    assert result.stdout.splitlines()[-1] == "report: out/report.html"
    return engines.parent / "out" / "report.html"


@pytest.fixture(scope="module")
def read(report: Path) -> Outline:
    return Outline(report.read_text())


@pytest.fixture(scope="module")
def verdicts(report: Path) -> list[dict]:
    return json.loads((report.parents[1] / "all.json").read_text())["verdicts"]


def test_it_says_what_the_verdicts_say(read: Outline, verdicts: list[dict], engines: Path) -> None:
    for verdict in verdicts:
        assert Path(verdict["plan"]).name in [text for _, text in read.headings]
        assert ("PASSED" if verdict["passed"] else "FAILED") in read.text
        for note in verdict["notes"]:
            assert note in read.text
        for row in verdict["meaning"]:
            if row["candidate"] == "onnxruntime-typed":
                assert f"{row['allowed_worst']:g}" in read.text
        manifest = Manifest.read(manifest_path(engines / Path(verdict["plan"]).name))
        for told in (manifest.plan_sha256, manifest.typed_sha256, verdict["reference"]["checkpoint_sha256"]):
            assert told in read.text
        width, height, depth = map(round, verdict["head_mm"])
        assert f"{width} mm wide, {height} mm high and {depth} mm deep" in read.text
    assert "face3d-trt compare --report out/report.html --json all.json" in read.text


def test_pictures_are_the_worst_with_both_meshes_and_two_maps(read: Outline, verdicts: list[dict]) -> None:
    images = [attributes for tag, attributes in read.tags if tag == "img" and attributes["alt"]]
    assert len(images) == 2 * 4 * 5  # plans, pictures, and for each: photo, two meshes, two maps
    assert all(str(image["src"]).startswith("data:image/webp;base64,") for image in images)
    for verdict in verdicts:
        rows = [row for row in verdict["meaning"] if row["candidate"] == "onnxruntime-typed" and row["better"] == "low"]
        nearest = max(rows, key=lambda row: row["worst"] / row["allowed_worst"])
        assert nearest["worst_image"] in [text for level, text in read.headings if level == 4]


def test_it_loads_nothing_and_runs_nothing(report: Path, read: Outline) -> None:
    for tag, attributes in read.tags:
        assert tag != "script"
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert str(attributes.get(name) or "#").startswith(("#", "data:"))
    text = report.read_text()
    assert "@import" not in text
    assert "url(" not in text
    assert len(text) < 2e6


def has_sound_structure(page: Outline) -> bool:
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), page.headings
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        assert tag != "th" or attributes["scope"] in {"col", "colgroup", "row"}
        assert tag != "img" or "alt" in attributes
        assert attributes.get("role") not in {"img", "region"} or {"aria-label", "aria-labelledby"} & set(attributes)
        for label in str(attributes.get("aria-labelledby") or "").split():
            assert label in ids
    assert page.tags[0] == ("html", {"lang": "en"})
    return True


def test_its_structure_can_be_heard(read: Outline, decoder: Decoder) -> None:
    assert has_sound_structure(read)
    assert has_sound_structure(outline(odd(decoder)))


def test_a_failed_plan_names_the_row_that_is_furthest_from_its_limit() -> None:
    comparison = made({"rotation": [0.1, 3.0], "landmark_max": [0.1, 100.0]})
    page = outline(comparison)
    assert "The plan failed." in page.text
    assert f"Decided by landmarks, max: {TITLE} is 100 px in one picture, allowed 4.4 px" in page.text
    assert "over the limit" in page.text


def test_what_makes_figures_void_decides_before_any_figure() -> None:
    damaged = Failure("integrity", "engines/a.int8.plan was changed after the build")
    page = outline(made({"landmark_max": [0.1, 100.0]}, failures=[damaged]))
    assert "Decided by engines/a.int8.plan was changed after the build." in page.text


def test_a_passed_plan_names_the_row_that_is_closest_to_its_limit() -> None:
    page = outline(made({"rotation": [0.1, 0.3], "landmark_max": [0.1, 0.2]}))
    assert "The plan passed." in page.text
    assert "Closest to its limit: coeffs identity (batch 8), 80 % of what is allowed." in page.text
    page = outline(made({"rotation": [0.1, 1.9]}))
    assert "Closest to its limit: rotation (worst in b.jpg), 200 % of" not in page.text
    assert "Decided by rotation" in page.text  # the median of two is 1.0, allowed 0.5


def test_of_a_plan_of_which_nothing_could_be_run_it_says_that() -> None:
    page = outline(made(rows=(), failures=[Failure("integrity", "the plan was changed")]))
    assert "Nothing: neither the plan nor its graphs could be run here." in page.text
    assert "Decided by the plan was changed." in page.text
    assert {text for level, text in page.headings if level == 3} == {
        "What failed",
        "Layers",
        "What was run",
        "Files and versions",
    }


def test_without_a_morphable_model_there_are_photos_and_the_reason() -> None:
    page = outline(made(exhibits=[exhibit(None, None)]))
    assert "ref.npz was saved without the morphable model (--no-bases)" in page.text
    assert len([tag for tag, attributes in page.tags if tag == "img" and attributes["alt"]]) == 1


def test_a_reference_without_bases_gives_a_page_of_a_real_plan(engines: Path, tmp_path: Path) -> None:
    from face3d_trt.parity.saving import SaveOptions, save_reference

    saved, home = tmp_path / "ref.npz", engines.parent
    save_reference(SaveOptions(saved, images=home / "faces", model=str(home / "model"), limit=8, bases=False))
    (comparison,) = comparisons([CompareOptions(engines / FP16, reference=saved)])
    assert comparison.decoder is None
    assert comparison.exhibits
    named = {row.worst_image for row in comparison.verdict.rows}
    assert {exhibit.image for exhibit in comparison.exhibits} <= named
    assert "so that no mesh can be drawn" in outline(comparison).text


def test_figures_without_limits_are_called_so() -> None:
    page = outline(made(rows=[replace(ROW, gated=False)]))
    assert "Nothing decided: the figures are shown and not gated." in page.text
    assert "not gated" in page.text


def test_names_are_text_whatever_is_in_them(decoder: Decoder) -> None:
    page = outline(odd(decoder))
    assert "b" not in {tag for tag, _ in page.tags}
    assert "<b>name</b>" in page.text
    assert "not drawn, since a coefficient is not finite" in page.text
    assert "1 not finite" in next(str(a["aria-label"]) for tag, a in page.tags if tag == "svg" and "aria-label" in a)


def layers(path: Path, typed_sha256: str, **other: object) -> Path:
    node = {
        "node": "conv1/Conv",
        "precision": "int8",
        "loss": 2.5,
        "group": "angle",
        "share": 0.25,
        "damage": "its weights",
    }
    content = {
        "schema_version": 1,
        "typed": "a.onnx",
        "typed_sha256": typed_sha256,
        "pictures": ["a.jpg", "b.jpg"],
        "channels": "BGR",
        "passed_before": False,
        "passed": True,
        "worst_before": "coeffs angle",
        "worst": "coeffs identity",
        "keep": [{"node": "conv1/Conv", "loss": 2.5}],
        "ranking": [node, *({**node, "node": f"conv{at}", "loss": 0.5, "damage": None} for at in range(2, 41))],
        "notes": [],
        "whatever": "comes later",
    }
    path.write_text(json.dumps(content | other))
    return path


def test_layers_are_shown_where_bisect_left_them(engines: Path, tmp_path: Path) -> None:
    for name in (INT8, f"{INT8}.json"):
        (tmp_path / name).write_bytes((engines / name).read_bytes())
    (tmp_path / "a.json").write_text("{}")
    comparison = made(plan=str(tmp_path / INT8))
    assert "face3d-trt bisect --plan" in outline(comparison).text
    digest = Manifest.read(tmp_path / f"{INT8}.json").typed_sha256
    file = layers(tmp_path / "keep.json", digest)
    text = outline(comparison).text
    assert "40 nodes were ranked; the gate stood on 2 pictures." in text
    assert "reads the colours as BGR" in text
    assert "Damaged: conv1/Conv. Of the first: " in text
    assert "The gate holds once 1 node stays" in text
    assert "And 20 more nodes" in text
    assert f"--keep {file}" in text
    other = layers(tmp_path / "other.json", "0" * 64)
    assert "is of another typed graph" in outline(comparison, sensitivity=other).text


def test_a_sensitivity_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schema_version": 1}')
    for name, problem in (("a.json", "is not what bisect writes"), ("b.json", "cannot be read: No such file")):
        with pytest.raises(UsageError, match=problem):
            read_layers(tmp_path / name)


def test_a_page_that_cannot_be_written_is_said_before_anything_is_measured(engines: Path, tmp_path: Path) -> None:
    for options, code, problem in (
        (("--report", str(tmp_path)), 3, f"cannot write {tmp_path}: Is a directory"),
        (("--report", "a.html", "--sensitivity", "none.json"), 2, "none.json cannot be read"),
        (("--sensitivity", "none.json"), 2, "it is for --report"),
    ):
        command = [sys.executable, "-m", "face3d_trt", "compare", "--plan", str(engines / FP16), *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
        assert result.returncode == code, result.stderr
        assert problem in result.stderr
        assert result.stdout == ""
        assert "reference" not in result.stderr.partition("error:")[0]
    assert list(tmp_path.iterdir()) == []


def test_a_former_page_stays_when_the_new_one_fails(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("former")
    with pytest.raises(UsageError):
        write_page(PageOptions(tmp_path / "report.html", tmp_path / "none.json"), [made()])
    assert (tmp_path / "report.html").read_text() == "former"
    assert len(list(tmp_path.iterdir())) == 1


def test_exhibits_change_nothing_of_the_verdict(engines: Path) -> None:
    """And are the answers that were measured: decoded again, they give the error that is said of them."""
    from face3d_trt.parity.meaning import Meter

    (comparison,) = comparisons([CompareOptions(engines / INT8)])
    assert comparison.verdict == compare(CompareOptions(engines / INT8))
    assert comparison.decoder is not None
    meter = Meter(comparison.decoder, None)
    strains = [each.strain for each in comparison.exhibits]
    assert strains == sorted(strains, reverse=True, key=lambda strain: strain or 0)
    for each in comparison.exhibits:
        assert each.reference is not None
        assert each.answer is not None
        found = meter.measure(each.reference[None], each.answer[None])
        if each.measure in found:
            assert float(found[each.measure][0]) == pytest.approx(each.values[each.measure], rel=1e-5)
        assert each.crop.shape == (224, 224, 3)
    assert np.ptp([each.crop.mean() for each in comparison.exhibits]) > 0
