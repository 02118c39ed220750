"""The whole comparison, on plans that were really built."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from PIL import Image
from rich.console import Console
from tests.helpers import export_unchecked, small_build

from face3d_trt.engine.build import BuildOptions, build_engine
from face3d_trt.engine.profile import Profile
from face3d_trt.errors import CalibrationError, ImageError, ModelError, PlanError
from face3d_trt.model.standin import StandinOptions, write_standin
from face3d_trt.names import GROUPS, MM_PER_UNIT
from face3d_trt.parity.compare import CompareOptions, compare, find_plans
from face3d_trt.parity.meaning import MEASURES
from face3d_trt.parity.pictures import calibration_note, choose_pictures
from face3d_trt.parity.places import exported_model
from face3d_trt.parity.table import show
from face3d_trt.parity.verdict import Verdict, to_json
from face3d_trt.records import Manifest, manifest_path

FP16 = "face3d_resnet50.fp16.plan"
INT8 = "face3d_resnet50.int8.plan"


@pytest.fixture
def own(engines: Path, tmp_path: Path) -> Path:
    """A copy of `engines` to be spoilt."""
    return Path(shutil.copytree(engines, tmp_path / "engines"))


@pytest.fixture(scope="module")
def fp16(engines: Path) -> Verdict:
    """The verdict about the fp16 plan as it was built, on a folder of which one picture is broken."""
    folder = engines.parent / "one broken"
    with as_file(files("face3d_trt.faces") / "data") as pictures:
        shutil.copytree(pictures, folder, ignore=shutil.ignore_patterns("*.md"))
    (folder / "broken.jpg").write_bytes(b"no picture")
    return compare(CompareOptions(engines / FP16, images=folder))


@pytest.fixture(scope="module")
def int8(engines: Path) -> Verdict:
    """The verdict about the int8 plan on the package's sample faces."""
    return compare(CompareOptions(engines / INT8))


def flip_a_convolution(path: Path) -> str:
    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    node = next(node for node in model.graph.node if node.name.startswith("backbone.layer2.0.conv2/"))
    tensor = weights[node.input[1]]
    tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, path)
    return node.name


def test_what_was_built_passes_and_says_what_it_stands_on(fp16: Verdict) -> None:
    assert fp16.passed, fp16.failures
    assert [check.name for check in fp16.checks] == ["plan", "typed ONNX", "float32 ONNX", "precision", "checkpoint"]
    assert all(check.passed for check in fp16.checks)
    assert fp16.batches == ("1, 3, 4 at 224x224 (profile 0)",)
    typed = [row for row in fp16.rows if row.candidate == "onnxruntime-typed"]
    assert {(row.batch, row.group) for row in typed} == {(n, g) for n in (1, 3, 4) for g in (None, *GROUPS)}
    assert all(1e-4 < row.relative < 0.01 and row.gated for row in typed)  # rounded, and within one per cent
    exact = [row for row in fp16.rows if row.candidate == "onnxruntime-fp32"]
    assert all(row.relative < 1e-4 and row.allowed_relative == 0.001 for row in exact)


def test_good_engines_keep_every_limit_in_mm_and_px_with_margin(fp16: Verdict, int8: Verdict) -> None:
    for verdict, margin in ((fp16, 2.0), (int8, 1.2)):
        typed = {row.measure: row for row in verdict.meaning if row.candidate == "onnxruntime-typed"}
        assert set(typed) == {name for name in MEASURES if not name.startswith("mesh")}
        for row in typed.values():
            assert row.gated
            assert row.passed
            assert row.pictures == 8
            assert row.allowed_p95 is None  # a twentieth of eight pictures is none
            if row.better == "low":
                assert margin * row.worst < row.allowed_worst, row
        assert typed["vertex_mean"].worst <= typed["vertex_p99"].worst <= typed["vertex_max"].worst
    assert verdict.head_mm == pytest.approx((152, 204, 109), abs=1)


def test_every_picture_has_its_figures_and_the_worst_is_the_worst_of_them(int8: Verdict) -> None:
    faces = {face.image: face.values for face in int8.faces if face.candidate == "onnxruntime-typed"}
    assert tuple(faces) == int8.pictures
    for row in (row for row in int8.meaning if row.candidate == "onnxruntime-typed"):
        values = [values[row.measure] for values in faces.values()]
        assert row.worst == (max if row.better == "low" else min)(values) == faces[row.worst_image][row.measure]
        assert row.median == pytest.approx(np.median(values))


def edit(path: Path, layer: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change the weights of one convolution."""
    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    node = next(node for node in model.graph.node if node.name.startswith(layer) and node.op_type == "Conv")
    tensor = weights[node.input[1]]
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(numpy_helper.to_array(tensor))), tensor.name))
    onnx.save(model, path)


@pytest.mark.parametrize(
    ("layer", "change", "named"),
    [
        ("backbone.layer3.1.conv2", lambda weight: weight * weight.dtype.type(1.5), "vertices, mean"),
        ("backbone.conv1", lambda weight: weight[:, ::-1], "albedo, PSNR"),  # BGR instead of RGB
        ("final_layers.3", lambda weight: weight * weight.dtype.type(0.9), "rotation"),
        ("final_layers.6", lambda weight: weight * weight.dtype.type(0.9), "translation"),
    ],
)
def test_damage_is_named_in_the_faces_own_terms(
    own: Path, layer: str, change: Callable[[np.ndarray], np.ndarray], named: str
) -> None:
    edit(own / "face3d_resnet50.fp16.onnx", layer, change)
    verdict = compare(CompareOptions(own / FP16))
    meaning = [failure for failure in verdict.failures if failure.kind == "meaning"]
    assert named in {MEASURES[str(failure.group)].title for failure in meaning}
    assert all(failure.text.startswith(MEASURES[str(failure.group)].title) for failure in meaning)
    assert all(failure.image in verdict.pictures for failure in meaning)
    if layer == "final_layers.3":
        assert not any(str(failure.group).startswith(("shape", "albedo", "light")) for failure in meaning)


def test_without_a_morphable_model_it_says_that_nothing_is_said_in_mm(own: Path) -> None:
    (own.parent / "model").mkdir()
    shutil.copytree(
        Path(Manifest.read(manifest_path(own / FP16)).model.source), own.parent / "model", dirs_exist_ok=True
    )
    (own.parent / "model/assets/BFM_model_front.mat").unlink()
    verdict = compare(CompareOptions(own / FP16, model=str(own.parent / "model")))
    assert verdict.passed
    assert verdict.meaning == verdict.faces == ()
    assert any("nothing is said in mm" in note for note in verdict.notes)


def test_without_a_gpu_the_verdict_speaks_of_the_typed_graph(fp16: Verdict) -> None:
    if fp16.engine_ran:
        pytest.skip("this machine has a GPU that runs the plan")
    assert list(fp16.candidates) == ["onnxruntime-fp32", "onnxruntime-typed"]
    assert any("the plan itself was not run here" in note for note in fp16.notes)


def test_a_broken_picture_among_good_ones_is_left_out_by_name(fp16: Verdict) -> None:
    assert len(fp16.pictures) == 8
    assert [entry.partition(":")[0] for entry in fp16.skipped] == ["broken.jpg"]


def test_one_convolution_of_the_other_sign_fails_by_output_and_group_and_the_edit_is_named(own: Path) -> None:
    flip_a_convolution(own / "face3d_resnet50.fp16.onnx")
    verdict = compare(CompareOptions(own / FP16))
    assert not verdict.passed
    integrity = [failure for failure in verdict.failures if failure.kind == "integrity"]
    assert len(integrity) == 1
    assert "face3d_resnet50.fp16.onnx was changed after the build" in integrity[0].text
    wrong = [failure for failure in verdict.failures if failure.kind == "relative"]
    assert {(f.candidate, f.output, f.group) for f in wrong} >= {("onnxruntime-typed", "coeffs", g) for g in GROUPS}
    assert {failure.batch for failure in wrong} == {1, 3, 4}


def test_a_plan_of_other_bytes_and_another_float32_graph_are_named(own: Path) -> None:
    with open(own / FP16, "ab") as plan:
        plan.write(b"\0")
    model = onnx.load(own / "face3d_resnet50.onnx")
    model.doc_string = "touched"
    onnx.save(model, own / "face3d_resnet50.onnx")
    verdict = compare(CompareOptions(own / FP16))
    assert {check.name for check in verdict.checks if not check.passed} == {"plan", "float32 ONNX"}
    assert {failure.kind for failure in verdict.failures} == {"integrity"}
    assert all("changed after the build" in failure.text for failure in verdict.failures)
    assert not verdict.engine_ran
    assert any("its bytes are not those that the manifest speaks of" in note for note in verdict.notes)
    assert {row.candidate for row in verdict.rows} == {"onnxruntime-fp32", "onnxruntime-typed"}


def test_a_manifest_relabelled_for_looser_limits_is_caught(own: Path) -> None:
    path = manifest_path(own / FP16)
    Manifest.read(path).model_copy(update={"precision": "int8"}).write(path)  # with a digest of its own
    verdict = compare(CompareOptions(own / FP16))
    (failed,) = [check for check in verdict.checks if not check.passed]
    assert failed.name == "precision"
    assert "made in fp16" in failed.text
    assert not verdict.passed


def test_another_model_as_reference_fails_in_hash_and_figures(engines: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(engines.parent / "model", tmp_path / "other"))
    checkpoint = torch.load(other / "pytorch_model.pt", weights_only=True)
    checkpoint["net_recon"]["final_layers.0.weight"] *= -1  # the identity head
    torch.save(checkpoint, other / "pytorch_model.pt")
    verdict = compare(CompareOptions(engines / FP16, model=str(other)))
    assert [check.name for check in verdict.checks if not check.passed] == ["checkpoint"]
    groups = {f.group for f in verdict.failures if f.candidate == "onnxruntime-fp32" and f.kind == "relative"}
    assert groups == {None, "identity"}


def worst(verdict: Verdict) -> float:
    """The largest share of the variation by which the typed graph is off."""
    return max(row.relative for row in verdict.rows if row.candidate == "onnxruntime-typed")


def test_int8_of_learned_weights_is_gated_on_pictures_that_did_not_calibrate(int8: Verdict) -> None:
    assert int8.weights == "learned"
    assert int8.origin == "the package's samples"
    assert all(row.gated for row in int8.rows)
    assert 0.01 < worst(int8) < 0.2  # sixteen renders do not bring it below the limit of 0.1
    assert not any("calibrated on these" in note for note in int8.notes)


def test_calibration_on_white_noise_fails_the_gate(engines: Path, int8: Verdict, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "noise").mkdir()
    for index in range(4):  # the search for ranges takes seconds for each
        picture = Image.fromarray(rng.integers(0, 256, (224, 224, 3), dtype=np.uint8))
        picture.save(tmp_path / "noise" / f"{index}.png")
    onnx_path, plan = engines / "face3d_resnet50.onnx", tmp_path / "noise.int8.plan"
    small_build(onnx_path, "int8", tmp_path / "noise", plan)
    verdict = compare(CompareOptions(plan))
    assert not verdict.passed
    assert {(f.candidate, f.kind) for f in verdict.failures} >= {
        ("onnxruntime-typed", "relative"),
        ("onnxruntime-typed", "meaning"),
    }
    assert worst(verdict) > 2 * worst(int8)


def test_int8_of_seeded_weights_is_shown_with_its_caveat_and_not_gated(tmp_path: Path, engines: Path) -> None:
    # seed 2: of the default seed's three random angle outputs one hardly differs between pictures
    write_standin(tmp_path / "model", StandinOptions(seeded=True, seed=2))
    onnx_path = export_unchecked(tmp_path / "model", tmp_path / "face3d_resnet50.onnx")
    verdict = compare(CompareOptions(small_build(onnx_path, "int8", engines.parent / "faces", method="max")))
    assert verdict.weights == "seeded"
    assert verdict.passed, verdict.failures
    assert not any(row.gated for row in verdict.rows if row.candidate == "onnxruntime-typed")
    meaning = [row for row in verdict.meaning if row.candidate == "onnxruntime-typed"]
    assert meaning
    assert not any(row.gated for row in meaning)
    assert all(row.gated for row in verdict.rows if row.candidate == "onnxruntime-fp32")
    assert any("seeded weights" in note and "meaningless" in note for note in verdict.notes)


def test_judging_on_the_calibration_pictures_is_said_and_so_is_how_many_were_used(engines: Path) -> None:
    faces = engines.parent / "faces"
    total = len(list(faces.iterdir()))
    verdict = compare(CompareOptions(engines / INT8, images=faces, limit=9))
    assert len(verdict.pictures) == 9
    assert f"9 of {total} pictures in {faces} were used, the first by name; --limit {total} takes all" in verdict.notes
    assert any("calibrated on these very pictures" in note for note in verdict.notes)


def test_calibration_pictures_are_known_under_other_names(engines: Path, tmp_path: Path) -> None:
    for index, picture in enumerate(sorted((engines.parent / "faces").iterdir(), reverse=True)):
        shutil.copy(picture, tmp_path / f"{index}.jpg")
    info = Manifest.read(manifest_path(engines / INT8))
    chosen = choose_pictures(tmp_path, info.model, 1000)
    (note,) = calibration_note(chosen, tmp_path, info, engines / INT8)
    assert "calibrated on these very pictures" in note
    assert calibration_note(choose_pictures(tmp_path, info.model, 5), tmp_path, info, engines / INT8) == ()


def test_a_mesh_from_bytes_passes_at_two_image_sizes(exported_mesh: Path, tmp_path: Path) -> None:
    profiles = (
        Profile.parse("min=1x224x224x3,opt=2x224x224x3,max=3x224x224x3"),
        Profile.parse("min=1x160x192x3,opt=2x160x192x3,max=2x160x192x3"),
    )
    options = BuildOptions(exported_mesh, "fp16", profiles=profiles, output=tmp_path / "mesh.fp16.plan")
    build_engine(options)
    verdict = compare(CompareOptions(options.plan))
    assert verdict.passed, verdict.failures
    assert verdict.batches == ("1, 2, 3 at 224x224 (profile 0)", "1, 2 at 160x192 (profile 1)")
    typed = [row for row in verdict.rows if row.candidate == "onnxruntime-typed"]
    assert {row.output for row in typed} == {"coeffs", "vertex", "texture"}
    assert {(row.height, row.width) for row in typed} == {(224, 224), (160, 192)}
    own = {row.measure: row for row in verdict.meaning if row.candidate == "onnxruntime-typed"}
    assert own["mesh_max"].worst == pytest.approx(own["vertex_max"].worst, rel=0.05)  # decode in the graph is float32
    vertex = [row for row in typed if row.output == "vertex"]
    assert all(0 < row.max_abs * MM_PER_UNIT < 1 for row in vertex)  # fp16 moves no vertex by a millimetre


def test_the_model_is_found_above_the_plan_from_another_folder(own: Path, engines: Path, monkeypatch, tmp_path) -> None:
    """As after `face3d-trt export --model model/` and a change of folder."""
    path = manifest_path(own / FP16)
    manifest = Manifest.read(path)
    relative = manifest.model.model_copy(update={"source": "model/"})
    manifest.model_copy(update={"model": relative}).write(path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="the model directory model/ of") as caught:
        exported_model(Manifest.read(path), own / FP16)
    assert caught.value.run is not None
    assert "--model DIRECTORY" in caught.value.run
    shutil.copytree(engines.parent / "model", tmp_path / "model")
    verdict = compare(CompareOptions(Path("..", "engines", FP16)))
    assert all(check.passed for check in verdict.checks)
    assert Path(verdict.model).resolve() == tmp_path / "model"


def test_a_photo_is_aligned_and_the_samples_say_how_much_pictures_differ(engines: Path, astronaut: Path) -> None:
    verdict = compare(CompareOptions(engines / FP16, images=astronaut))
    assert verdict.passed, verdict.failures
    assert verdict.pictures[0] == "astronaut.png"
    assert len(verdict.pictures) == 9
    assert any("8 sample faces were added" in note for note in verdict.notes)


def test_nothing_usable_is_an_error(engines: Path, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError):
        compare(CompareOptions(engines / FP16, images=tmp_path))
    with pytest.raises(ImageError, match="absent"):
        compare(CompareOptions(engines / FP16, images=tmp_path / "absent.jpg"))
    Image.fromarray(np.zeros((400, 400, 3), np.uint8)).save(tmp_path / "black.png")
    with pytest.raises(CalibrationError, match="black"):
        compare(CompareOptions(engines / FP16, images=tmp_path))


def test_missing_files_are_named_with_the_command_that_makes_them(own: Path) -> None:
    (own / "face3d_resnet50.fp16.onnx").unlink()
    with pytest.raises(PlanError, match=r"face3d_resnet50\.fp16\.onnx, the typed ONNX") as caught:
        compare(CompareOptions(own / FP16))
    assert "face3d-trt build" in str(caught.value)
    manifest_path(own / FP16).unlink()
    with pytest.raises(PlanError, match=r"fp16\.plan\.json is missing"):
        compare(CompareOptions(own / FP16))


def test_plans_without_a_manifest_are_left_out(own: Path) -> None:
    assert [plan.name for plan in find_plans(own)] == [FP16, INT8]
    manifest_path(own / INT8).unlink()
    assert [plan.name for plan in find_plans(own)] == [FP16]


def test_json_holds_every_figure_and_no_nan(own: Path) -> None:
    model = onnx.load(own / "face3d_resnet50.fp16.onnx")
    bias = next(t for t in model.graph.initializer if t.name == "final_layers.3.bias")
    bias.CopyFrom(numpy_helper.from_array(np.full(3, np.nan, np.float16), bias.name))
    onnx.save(model, own / "face3d_resnet50.fp16.onnx")
    verdict = compare(CompareOptions(own / FP16))
    content = json.loads(to_json([verdict]), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert content["passed"] is content["verdicts"][0]["passed"] is False
    angle = [row for row in content["verdicts"][0]["rows"] if row["group"] == "angle" and row["nan"]]
    assert {(row["batch"], row["max_abs"], row["cosine"]) for row in angle} == {(n, None, None) for n in (1, 3, 4)}
    assert {f["group"] for f in content["verdicts"][0]["failures"] if f["kind"] == "non-finite"} == {None, "angle"}


def test_tables_fit_eighty_columns_with_nothing_cut_off(own: Path) -> None:
    flip_a_convolution(own / "face3d_resnet50.fp16.onnx")
    console = Console(width=80, record=True, force_terminal=False)
    with console.capture() as capture:
        show(compare(CompareOptions(own / FP16)), console)
    text = capture.get()
    tables = [line for line in text.splitlines() if line.startswith((" ", "ONNX Runtime"))]
    assert tables
    assert all(len(line) <= 80 for line in tables)
    assert "…" not in text
    assert "FAIL" in text
    assert "failed: coeffs angle: ONNX Runtime, the typed fp16 ONNX" in text
