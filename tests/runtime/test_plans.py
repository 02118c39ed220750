"""Bad plans: each kind of damage has its own message, and none reaches TensorRT."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from face3d_trt import OrtEngine, open_engine
from face3d_trt.engine.flavour import find_flavour
from face3d_trt.engine.inspect import inspect_plan
from face3d_trt.engine.options import BuildOptions, check_plan
from face3d_trt.engine.show import print_inspection
from face3d_trt.errors import PlanError
from face3d_trt.records import Gpu, Manifest, manifest_path, sealed
from face3d_trt.runtime.plans import check_runs, open_plan

H200 = Gpu(name="NVIDIA H200", compute_capability="9.0", driver="580")


@pytest.fixture
def plan(float_plan: Path, mesh_plan: Path, tmp_path: Path) -> Path:
    """A copy of a plan, with another one beside it."""
    for source in (float_plan, mesh_plan):
        for file in (source, manifest_path(source), source.with_suffix(".onnx")):
            shutil.copy(file, tmp_path)
    plan = tmp_path / float_plan.name
    size = plan.stat().st_size
    Manifest.read(manifest_path(plan)).model_copy(update={"plan_bytes": size}).write(manifest_path(plan))
    return plan


def refused(plan: Path) -> PlanError:
    with pytest.raises(PlanError) as caught:
        open_plan(plan)
    assert str(plan) in caught.value.problem
    assert caught.value.allowed
    assert "face3d-trt build" in caught.value.run
    return caught.value


def other(plan: Path) -> Path:
    return plan.with_name("mesh.fp32.plan")


def missing(plan: Path) -> None:
    plan.unlink()


def no_manifest(plan: Path) -> None:
    manifest_path(plan).unlink()


def empty(plan: Path) -> None:
    plan.write_bytes(b"")


def cut(plan: Path) -> None:
    os.truncate(plan, plan.stat().st_size - 1)


def changed(plan: Path) -> None:
    data = bytearray(plan.read_bytes())
    data[len(data) // 2] ^= 1
    plan.write_bytes(data)


def swapped_plan(plan: Path) -> None:
    shutil.copy(other(plan), plan)


def swapped_manifest(plan: Path) -> None:
    shutil.copy(manifest_path(other(plan)), manifest_path(plan))


def onnx(plan: Path) -> None:
    shutil.copy(plan.with_suffix(".onnx"), plan)


def onnx_alone(plan: Path) -> None:
    onnx(plan)
    no_manifest(plan)


def noise(plan: Path) -> None:
    plan.write_bytes(np.random.default_rng(0).bytes(5000))


def folder(plan: Path) -> None:
    plan.unlink()
    plan.mkdir()


DAMAGE = {
    missing: "is missing",
    no_manifest: "has no manifest",
    empty: "is empty",
    cut: "is cut off",
    changed: "is not the plan that its manifest describes",
    swapped_plan: "holds the bytes of another plan: those of mesh.fp32.plan",
    swapped_manifest: "is the manifest of another plan: that of mesh.fp32.plan",
    onnx: "is an ONNX file, not a plan",
    onnx_alone: "is an ONNX file, not a plan",
    noise: "is no TensorRT plan",
    folder: "is a folder",
}


def test_a_whole_plan_is_read(plan):
    manifest, data = open_plan(plan)
    assert data == plan.read_bytes()
    assert len(manifest.profiles) == 2


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_each_damage_is_named(plan, damage):
    damage(plan)
    assert DAMAGE[damage] in refused(plan).problem
    for opened in (OrtEngine, open_engine):  # the twin refuses what the engine would
        with pytest.raises(PlanError, match=DAMAGE[damage]):
            opened(plan)


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999])
def test_a_plan_cut_anywhere_says_how_much_of_it_is_there(plan, share):
    whole = plan.stat().st_size
    os.truncate(plan, kept := max(1, int(whole * share)))
    assert f"{kept:,} of {whole:,} bytes" in refused(plan).problem


def test_a_plan_of_before_its_size_was_recorded_is_refused_too(plan):
    path = manifest_path(plan)
    Manifest.read(path).model_copy(update={"plan_bytes": None}).write(path)
    cut(plan)
    assert "not the plan that its manifest describes" in refused(plan).problem


def test_a_manifest_that_is_none_is_named(plan):
    manifest_path(plan).write_text('{"schema_version": 1}')
    with pytest.raises(PlanError, match="is not a Manifest"):
        open_plan(plan)


@pytest.mark.parametrize("shapes", [(1, 1), ((0, 3, 224, 224),) * 2, ((4, 3, 224, 224), (2, 3, 224, 224))])
def test_a_manifest_with_profiles_that_are_none_is_named(plan, shapes):
    """Some program wrote it; a minimum of 0 would have the batch cut into pieces without end."""
    path = manifest_path(plan)
    low, high = ([each] if isinstance(each, int) else each for each in shapes)
    facts = json.loads(path.read_text()) | {"profiles": [{"min": low, "opt": low, "max": high}]}
    path.write_bytes(sealed(facts))
    with pytest.raises(PlanError, match=r"profiles\.0.*ax[ei]s"):
        open_plan(plan)


@pytest.mark.parametrize(
    "edit", [{"precision": "int8"}, {"flavour_version": "10.3.0"}, {"gate": {"passed": True}}, {"digest": "0" * 64}]
)
def test_a_manifest_that_was_edited_by_hand_is_refused(plan, edit):
    path = manifest_path(plan)
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | edit, indent=2))
    for opened in (open_plan, OrtEngine, open_engine):
        with pytest.raises(PlanError, match="was edited since build wrote it"):
            opened(plan)
    assert inspect_plan(plan).trouble is not None


def test_only_the_content_of_a_manifest_counts_and_earlier_ones_are_read_with_a_note(plan):
    path = manifest_path(plan)
    facts = json.loads(path.read_text())
    manifest, _ = open_plan(plan)
    path.write_text(json.dumps(dict(reversed(facts.items()))))
    assert open_plan(plan)[0] == manifest
    assert inspect_plan(plan).sealed
    del facts["digest"]
    path.write_text(json.dumps(facts))
    found = inspect_plan(plan)
    assert (found.trouble, found.manifest, found.sealed) == (None, manifest, False)
    console = Console(width=200, file=io.StringIO(), record=True)
    print_inspection(found, console, every_layer=False)
    assert "has no digest, so edits of it would not be noticed" in console.export_text()


@pytest.mark.parametrize("name", ["", ".", "/", "p" * 300, "p" * 250 + ".plan", "a/../b"])
def test_a_path_that_is_no_files_name_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if len(name) == 255:  # a plan whose manifest's name is too long
        Path(name).write_bytes(b"ftrt")
    with pytest.raises(PlanError, match=r"is a folder|is missing|has no manifest"):
        open_plan(Path(name))


@pytest.mark.parametrize("name", ["a.engine", "a.plan.bak", "a", ".", "..", "engines", "p" * 255, "p" * 250 + ".plan"])
def test_a_hint_names_a_plan_that_build_takes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("engines").mkdir()
    if name[0] in "ap":
        Path(name).write_bytes(b"ftrt")
    with pytest.raises(PlanError) as caught:
        open_plan(Path(name))
    words = shlex.split(str(caught.value.run), comments=True)
    assert words[:4] == ["face3d-trt", "build", "--fp16", "-o"]
    check_plan(BuildOptions(output=Path(words[4])), find_flavour())


def tensorrt(version: str, gpu: Gpu):
    """A TensorRT that is not here, by its facts."""
    return dataclasses.replace(find_flavour(), name="tensorrt", version=version, gpu=gpu)


def built(plan: Path, **facts: object) -> Manifest:
    manifest = Manifest.read(manifest_path(plan))
    return manifest.model_copy(update={"flavour": "tensorrt", "flavour_version": "8.6.0", "gpu": H200, **facts})


def why(manifest: Manifest, flavour) -> PlanError:
    with pytest.raises(PlanError, match=r"^a\.plan does not run here") as caught:
        check_runs(manifest, flavour, where="a.plan")
    assert manifest.command in caught.value.run
    return caught.value


def test_a_plan_of_this_machine_passes(plan):
    check_runs(built(plan), tensorrt("8.6.0", H200), where="a.plan")


def test_another_version_another_gpu_and_another_flavour_read_differently(plan):
    version = why(built(plan), tensorrt("10.3.0", H200))
    assert "8.6.0" in version.problem
    assert "10.3.0" in version.problem
    assert "TensorRT 10.3.0" in version.allowed
    l4 = Gpu(name="NVIDIA L4", compute_capability="8.9", driver="580")
    gpu = why(built(plan), tensorrt("8.6.0", l4))
    assert "NVIDIA H200 (9.0)" in gpu.problem
    assert "NVIDIA L4 (8.9)" in gpu.problem
    assert "--hardware-compat" in gpu.allowed
    rtx = why(built(plan, flavour="tensorrt_rtx", flavour_version="1.7", gpu=None), tensorrt("8.6.0", H200))
    assert "TensorRT-RTX" in rtx.problem
    assert len({version.allowed, gpu.allowed, rtx.allowed}) == 3
