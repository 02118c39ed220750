"""What chooses takes no part in judging."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from PIL import Image
from tests.tiny import crops, tiny_graph, write_crops, write_tiny

from face3d_trt.faces.samples import choice_crops, sample_crops
from face3d_trt.graph.info import read_info
from face3d_trt.parity.held_out import parted
from face3d_trt.parity.judging import Judged, JudgeOptions, exact_judge
from face3d_trt.parity.pictures import Chosen, choose_pictures


def pixels(chosen: Chosen) -> set[bytes]:
    return {crop.tobytes() for crop in chosen.pictures.crops}


@pytest.mark.parametrize(("count", "own"), [(0, False), (15, False), (16, True), (21, True)])
def test_no_picture_chooses_and_judges(tmp_path: Path, count: int, own: bool) -> None:
    """Enough pictures of the user's do both; fewer, and the package's samples, judge alone."""
    images = write_crops(tmp_path / "images", count) if count else None
    every = choose_pictures(images, read_info(tiny_graph()), 32)
    choice, judging = parted(every)
    assert len(choice.pictures.names) >= 8 <= len(judging.pictures.names)
    assert not pixels(choice) & pixels(judging)
    if own:
        assert pixels(choice) | pixels(judging) == pixels(every)
        assert set(choice.pictures.names) | set(judging.pictures.names) == set(every.pictures.names)
        assert choice.origin != judging.origin
    else:
        assert judging is every
        assert pixels(choice) == {crop.tobytes() for crop in choice_crops()}


def test_the_same_picture_under_many_names_is_one(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for index in range(32):
        Image.fromarray(crops(9)[index % 9]).save(tmp_path / "images" / f"{index:02}.png")
    every = choose_pictures(tmp_path / "images", read_info(tiny_graph()), 32)
    assert parted(every)[1] is every


def test_what_ships_for_choosing_is_neither_a_sample_nor_a_calibration_picture(root: Path) -> None:
    from face3d_trt.faces.images import read_image

    choice = {crop.tobytes() for crop in choice_crops()}
    calibration = {read_image(path).tobytes() for path in (root / "calibration").glob("*.jpg")}
    assert len(choice) == 16
    assert len(calibration) == 128
    assert not choice & calibration
    assert not choice & {crop.tobytes() for crop in sample_crops()}


def test_a_choice_leaves_a_margin(tmp_path: Path) -> None:
    """The same graph with the same figures, and only the share of the limit that may be used differs."""
    import onnx

    source = write_tiny(tmp_path / "face.onnx")
    info = read_info(source).model_copy(update={"weights": "learned"})
    judge = exact_judge(source, JudgeOptions(info, source, "int8", write_crops(tmp_path / "images", 8)))
    model = onnx.load(source)
    plain = judge.graph(model, source)
    assert plain.passed
    used = dataclasses.replace(plain, margin=plain.strain)
    assert isinstance(used, Judged)
    assert used.passed
    assert not dataclasses.replace(plain, margin=plain.strain / 2).passed
    assert judge.within(plain.strain).graph(model, source).passed
    assert not judge.within(plain.strain / 2).graph(model, source).passed
    assert judge.graph(model, source).passed
