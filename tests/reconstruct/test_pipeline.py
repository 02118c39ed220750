"""Runs with everything real: processes, shared memory, MTCNN, the small stand-in in ONNX Runtime."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.reconstruct.conftest import Finished, run
from tests.reconstruct.mixed import write_video

from face3d_trt.reconstruct.products import ProductOptions
from face3d_trt.runtime.ort import OrtEngine


def infer(plan: Path, crops: np.ndarray) -> np.ndarray:
    """What the engine says of crops, each alone, without any pipeline."""
    pictures = crops.transpose(0, 3, 1, 2).astype(np.float32) / 255
    with OrtEngine(plan, threads=1) as engine:
        return np.concatenate([engine(each[None])["coeffs"] for each in pictures])


def test_every_file_of_a_mixed_folder_is_accounted_for(mixed, mixed_run):
    expected = mixed[1]
    found = {name: each.get("stage", each["status"]) for name, each in mixed_run.records().items()}
    assert found == expected
    assert sum(mixed_run.summary.counts.values()) == len(expected) == 23
    assert all(each["reason"] for each in mixed_run.records().values() if each["status"] == "failed")


def test_results_stand_in_the_order_of_the_sources_and_name_what_is_there(mixed_run):
    records = mixed_run.records()
    assert list(records) == sorted(records)
    files = {f"{name}/{file}": size for name, each in records.items() for file, size in each.get("files", {}).items()}
    there = {name: len(content) for name, content in mixed_run.tree().items() if name != "results.jsonl"}
    assert there == files


def test_of_two_faces_the_larger_is_taken_and_both_are_counted(mixed_run):
    record = mixed_run.records()["round0/two faces.jpg"]
    assert record["faces"] == 2
    left, _, right, _ = record["taken"][0]["box"]
    assert right < 260  # the larger is in the left half
    assert right - left > 20


def test_a_rotated_photo_gives_the_face_of_the_upright_one(mixed_run):
    upright, rotated = (mixed_run.records()[f"round0/{name}.jpg"]["taken"][0]["box"] for name in ("small", "rotated"))
    assert np.abs(np.subtract(upright, rotated)).max() <= 2  # px; on its side MTCNN would find nothing
    coeffs = [mixed_run.coeffs(f"round0/{name}.jpg")[224:227] for name in ("small", "rotated")]
    assert np.abs(coeffs[0] - coeffs[1]).max() < 0.05


def test_batches_change_no_coefficient(mixed_run, crops, exported):
    order = ("a.jpg", "b.png", "a.png", "ä ö.bmp")
    alone = infer(exported, crops[1:4])
    for name, coeffs in zip(order[1:], alone, strict=True):  # the first is a JPEG
        assert np.abs(mixed_run.coeffs(f"round0/{name}") - coeffs).max() < 1e-5


def test_two_engines_give_the_bytes_and_the_order_of_one(mixed, mixed_run, exported, tmp_path):
    two = run(tmp_path / "out", exported, mixed[0], devices="cpu,cpu", batch=3, workers=1, queue=7)
    assert two.tree() == mixed_run.tree()


def test_meshes_and_textures_do_not_depend_on_batches_or_engines(mixed, exported, tmp_path):
    photos = [mixed[0] / "round0" / name for name in ("small.jpg", "two faces.jpg", "a.jpg")]
    products = ProductOptions(texture_size=256)
    whole = run(tmp_path / "whole", exported, *photos, products=products, faces="all")
    single = run(tmp_path / "single", exported, *photos, products=products, faces="all", batch=1, devices="cpu,cpu")
    assert single.tree() == whole.tree()
    (two,) = (each for name, each in whole.records().items() if name.endswith("two faces.jpg"))
    assert [face["stem"] for face in two["taken"]] == ["two_faces-0", "two_faces-1"]
    assert {"two_faces-0.obj", "two_faces-0.png", "two_faces-1.obj", "two_faces-1.png"} <= set(two["files"])


def test_arrays_and_files_of_crops_give_the_same(crops, exported, tmp_path):
    for index, crop in enumerate(crops):
        (tmp_path / "faces").mkdir(exist_ok=True)
        Image.fromarray(crop).save(tmp_path / "faces" / f"{index}.png")
    np.save(tmp_path / "all.npy", crops)
    np.savez(tmp_path / "parts.npz", first=crops[:3], rest=crops[3:])
    np.save(tmp_path / "wrong.npy", crops.astype(np.float32))
    sources = [tmp_path / name for name in ("faces", "all.npy", "parts.npz", "wrong.npy")]
    found = run(tmp_path / "out", exported, *sources, detector="aligned")
    records = found.records()
    names = {name: name.removeprefix(str(tmp_path)[1:] + "/") for name in records}
    assert [names[name] for name in records if records[name]["status"] == "failed"] == ["wrong.npy"]
    by = {names[name]: found.coeffs(name) for name in records if records[name]["status"] == "done"}
    singles = np.stack([by[f"faces/{index}.png"] for index in range(8)])
    assert np.array_equal(by["all.npy/00000000-00000008"], singles)
    blocks = [by["parts.npz/first/00000000-00000003"], by["parts.npz/rest/00000000-00000005"]]
    assert np.array_equal(np.concatenate(blocks), singles)
    assert np.abs(singles - infer(exported, crops)).max() < 1e-5
    assert found.summary.counts == {"done": 24, "failed": 1}


def test_frames_of_a_video_are_pictures(astronaut, exported, tmp_path):
    photo = np.asarray(Image.open(astronaut).resize((256, 256)))
    blank = np.zeros_like(photo)
    write_video(tmp_path / "film.avi", [photo, blank, photo])
    found = run(tmp_path / "out", exported, tmp_path)
    outcome = {name: each["status"] for name, each in found.records().items()}
    assert outcome == {
        "film.avi/000000": "done",
        "film.avi/000001": "failed",
        "film.avi/000002": "done",
        "film.avi": "video",
    }
    assert found.records()["film.avi"]["frames"] == 3
    assert np.array_equal(found.coeffs("film.avi/000000"), found.coeffs("film.avi/000002"))


@pytest.mark.parametrize("victim", ["worker", "engine"])
def test_a_process_that_dies_costs_at_most_the_picture_it_was_at(victim, mixed, mixed_run, exported, tmp_path):
    killed = []

    def kill_one(status):
        if status.finished >= 3 and not killed:
            children = [each for each in multiprocessing.active_children() if victim in each.name]
            killed.append(children[0].pid)
            os.kill(children[0].pid, signal.SIGKILL)

    found = run(tmp_path / "out", exported, mixed[0], watch=kill_one, batch=2)
    assert killed
    expected, records = mixed_run.records(), found.records()
    assert list(records) == list(expected)
    other = [name for name in expected if records[name] != expected[name]]
    assert len(other) <= (victim == "worker")
    assert all("died" in records[name]["reason"] for name in other)


def test_what_is_running_is_not_joined_by_another(mixed_run: Finished, mixed, exported, tmp_path):
    from face3d_trt.errors import StorageError

    attempts = []

    def another(status):
        if not attempts:
            with pytest.raises(StorageError, match="another run of it is running"):
                run(tmp_path / "out", exported, mixed[0], resume=True)
            attempts.append(status)

    run(tmp_path / "out", exported, mixed[0], watch=another)  # long enough to be watched
    assert attempts
