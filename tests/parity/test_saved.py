"""A reference file says what PyTorch says, on a machine that has none, and refuses to speak of anything else."""

from __future__ import annotations

import dataclasses
import io
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from face3d_trt.errors import ModelError, StorageError, UsageError
from face3d_trt.faces.collect import collect_faces
from face3d_trt.faces.samples import sample_crops
from face3d_trt.files import sha256_file
from face3d_trt.model.load import load_model
from face3d_trt.parity.compare import CompareOptions, compare
from face3d_trt.parity.reference_file import ReferenceFile, read_reference
from face3d_trt.parity.saved import saved_basis
from face3d_trt.parity.saving import SaveOptions, save_reference
from face3d_trt.parity.verdict import Verdict, to_json
from face3d_trt.records import Manifest, ProfileRecord, manifest_path

FP16 = "face3d_resnet50.fp16.plan"
INT8 = "face3d_resnet50.int8.plan"
LIMIT = 9
BUILD_SIDE = ("torch", "onnxscript", "modelopt", "modelscope", "scipy", "PIL", "cv2")


@pytest.fixture(scope="module")
def saved(engines: Path) -> Path:
    """Of the first faces that calibrated int8, without looking at any plan."""
    home = engines.parent
    path = home / "saved" / "ref.npz"
    save_reference(SaveOptions(path, images=home / "faces", model=str(home / "model"), limit=LIMIT))
    return path


@pytest.fixture(scope="module")
def direct(engines: Path) -> dict[str, Verdict]:
    """What PyTorch in this process says of the same."""
    return {
        plan: compare(CompareOptions(engines / plan, images=engines.parent / "faces", limit=LIMIT))
        for plan in (FP16, INT8)
    }


@pytest.fixture(scope="module")
def manifest(engines: Path) -> Manifest:
    return Manifest.read(manifest_path(engines / FP16))


def without_reference(verdict: Verdict) -> dict[str, object]:
    content = dataclasses.asdict(verdict)
    assert content.pop("checks")[-1]["name"] == "checkpoint"
    return {key: value for key, value in content.items() if key != "reference"}


@pytest.mark.parametrize("plan", [FP16, INT8])
def test_figures_notes_and_pictures_are_those_of_pytorch_to_the_last_digit(
    engines: Path, saved: Path, direct: dict[str, Verdict], plan: str
) -> None:
    verdict = compare(CompareOptions(engines / plan, reference=saved))
    assert without_reference(verdict) == without_reference(direct[plan])
    assert {row.rows for row in verdict.rows if row.batch == 1} == {LIMIT}
    calibrated = [note for note in verdict.notes if "calibrated on these very pictures" in note]
    assert bool(calibrated) == (plan == INT8)


def test_the_file_holds_the_pictures_and_what_the_network_gives_for_them(engines: Path, saved: Path) -> None:
    file = read_reference(saved)
    faces = collect_faces(engines.parent / "faces", None, limit=LIMIT)
    assert file.record.names == faces.names
    np.testing.assert_array_equal(file.crops[224, 224], faces.crops)
    network = load_model(engines.parent / "model", morphable=False).network
    with torch.inference_mode():
        expected = network(torch.from_numpy(faces.crops.transpose(0, 3, 1, 2) / np.float32(255)))
    np.testing.assert_allclose(file.outputs[224, 224]["coeffs"], expected.numpy(), rtol=1e-5, atol=1e-5)
    assert file.record.model.checkpoint_sha256 == sha256_file(engines.parent / "model" / "pytorch_model.pt")
    assert file.record.tools == {"torch": torch.__version__, "numpy": np.__version__}


def test_the_morphable_model_is_inside_unless_it_is_left_out(engines: Path, saved: Path, tmp_path: Path) -> None:
    model = load_model(engines.parent / "model").morphable
    assert model is not None
    inside = read_reference(saved).decoder
    assert inside is not None
    assert inside.shape_basis.dtype == np.float32
    np.testing.assert_array_equal(inside.shape_basis, model.shape_basis.numpy())
    file = tmp_path / "ref.npz"
    save_reference(SaveOptions(file, model=str(engines.parent / "model"), bases=False))
    with np.load(file) as archive:
        assert not [name for name in archive.files if "bas" in name or "mean" in name]
    verdict = compare(CompareOptions(engines / FP16, reference=file))
    assert verdict.passed
    assert verdict.meaning == ()
    assert any("nothing is said in mm" in note and "ref.npz" in note for note in verdict.notes)


def test_json_says_where_the_reference_came_from(engines: Path, saved: Path, direct: dict[str, Verdict]) -> None:
    here = json.loads(to_json([direct[FP16]]))["verdicts"][0]["reference"]
    there = json.loads(to_json([compare(CompareOptions(engines / FP16, reference=saved))]))["verdicts"][0]["reference"]
    assert (here["file"], here["created"], there["file"]) == (None, None, str(saved))
    assert there["created"] == read_reference(saved).record.created
    for fact in ("checkpoint_sha256", "inputs_sha256", "torch", "version"):
        assert here[fact] == there[fact]


def bare(folder: Path, blocked: tuple[str, ...], *options: str) -> subprocess.CompletedProcess[str]:
    """`face3d-trt compare` in an interpreter that cannot import `blocked`."""
    program = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
from face3d_trt.cli import main
sys.argv = ["face3d-trt", "compare", *{options!r}]
main()
"""
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)


@pytest.fixture
def elsewhere(engines: Path, saved: Path, tmp_path: Path) -> Path:
    """Another machine's folder: the plan, its manifest, the reference; no model, no photos, no graphs."""
    for path in (engines / FP16, manifest_path(engines / FP16), saved):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_graphs_are_judged_without_torch_model_and_photos(
    engines: Path, elsewhere: Path, direct: dict[str, Verdict]
) -> None:
    for name in ("face3d_resnet50.fp16.onnx", "face3d_resnet50.fp16.onnx.json", "face3d_resnet50.onnx"):
        shutil.copy(engines / name, elsewhere)
    result = bare(elsewhere, BUILD_SIDE, "--plan", FP16, "--reference", "ref.npz", "--json", "verdict.json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"PASSED {FP16}" in result.stdout
    assert "reference: ref.npz, by PyTorch" in result.stdout
    there = json.loads((elsewhere / "verdict.json").read_text())["verdicts"][0]
    here = json.loads(to_json([direct[FP16]]))["verdicts"][0]
    assert there["rows"] == here["rows"]
    assert here["head_mm"] == there["head_mm"]
    assert there["meaning"] == [row for row in here["meaning"] if not row["measure"].endswith("ssim")]
    assert any("SSIM was not measured" in note for note in there["notes"])  # scikit-image wants scipy


def test_the_report_needs_neither_torch_nor_model(engines: Path, elsewhere: Path) -> None:
    for name in ("face3d_resnet50.fp16.onnx", "face3d_resnet50.fp16.onnx.json", "face3d_resnet50.onnx"):
        shutil.copy(engines / name, elsewhere)
    without = tuple(name for name in BUILD_SIDE if name != "PIL")  # every installation has Pillow
    result = bare(elsewhere, without, "--plan", FP16, "--reference", "ref.npz", "--report", "report.html")
    assert result.returncode == 0, result.stdout + result.stderr
    page = (elsewhere / "report.html").read_text()
    assert page.count("data:image/webp") >= 4 * 5  # of four pictures: photo, two meshes, two heat maps
    assert "ref.npz, by PyTorch" in page


def test_a_report_without_its_packages_is_refused_before_the_work(elsewhere: Path) -> None:
    for package in ("jinja2", "matplotlib"):
        asked = ("--plan", FP16, "--reference", "ref.npz", "--report", "report.html")
        result = bare(elsewhere, (*BUILD_SIDE, package), *asked)
        assert result.returncode == 3
        assert f"needs the package {package}" in result.stderr
        assert "reference" not in result.stderr.partition("error:")[0]


def test_a_plan_of_which_nothing_can_be_run_has_not_passed(elsewhere: Path, direct: dict[str, Verdict]) -> None:
    if direct[FP16].engine_ran:
        pytest.skip("this machine has a GPU that runs the plan")
    asked = ("--plan", FP16, "--reference", "ref.npz")
    result = bare(elsewhere, BUILD_SIDE, *asked)
    assert result.returncode == 3
    assert "the plan cannot be run (this machine has no GPU)" in result.stderr
    assert "neither can the typed fp16 ONNX (the file is not here)" in result.stderr
    result = bare(elsewhere, (*BUILD_SIDE, "onnx"), *asked)
    assert result.returncode == 3
    assert "neither can the typed fp16 ONNX (onnx cannot be imported)" in result.stderr
    assert result.stdout == ""


def test_a_float32_graph_alone_says_nothing_of_an_fp16_plan(
    engines: Path, elsewhere: Path, direct: dict[str, Verdict]
) -> None:
    if direct[FP16].engine_ran:
        pytest.skip("this machine has a GPU that runs the plan")
    shutil.copy(engines / "face3d_resnet50.onnx", elsewhere)
    result = bare(elsewhere, BUILD_SIDE, "--plan", FP16, "--reference", "ref.npz")
    assert result.returncode == 3


def test_a_changed_plan_fails_where_nothing_else_can_be_run(elsewhere: Path) -> None:
    with open(elsewhere / FP16, "ab") as plan:
        plan.write(b"\0")
    result = bare(elsewhere, (*BUILD_SIDE, "onnx"), "--plan", FP16, "--reference", "ref.npz")
    assert result.returncode == 1
    assert "was changed after the build" in result.stdout
    assert f"FAILED {FP16}: 1 failure" in result.stdout


def test_without_a_file_torch_is_asked_for(elsewhere: Path) -> None:
    for options in (("--plan", FP16), ("--save-reference", "new.npz", "--plan", FP16)):
        result = bare(elsewhere, BUILD_SIDE, *options)
        assert result.returncode == 3
        assert "needs the package torch" in result.stderr
    assert not (elsewhere / "new.npz").exists()


def changed(manifest: Manifest, **facts: object) -> Manifest:
    return manifest.model_copy(update={"model": manifest.model.model_copy(update=facts)})


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"checkpoint_sha256": "f" * 64, "source": "other"},
            r"of another model than a\.plan.*of other \(ffffffffffff…\)",
        ),
        ({"outputs": "mesh"}, r"saved with outputs coeffs, and a\.plan has outputs mesh"),
    ],
)
def test_it_is_refused_for_another_model(
    saved: Path, manifest: Manifest, facts: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        saved_basis(read_reference(saved), changed(manifest, **facts), Path("a.plan"))
    assert "compare --save-reference" in str(caught.value)


def test_it_is_refused_for_another_input(saved: Path, manifest: Manifest) -> None:
    shapes = dict.fromkeys(("min", "opt", "max"), (1, 224, 224, 3))
    other = changed(manifest, input="uint8").model_copy(update={"profiles": (ProfileRecord(**shapes),)})
    with pytest.raises(UsageError, match=r"input float32, and a\.plan has input uint8") as caught:
        saved_basis(read_reference(saved), other, Path("a.plan"))
    assert "--input uint8 --size 224x224" in str(caught.value)


def with_profile(manifest: Manifest, height: int, width: int) -> Manifest:
    shapes = dict.fromkeys(("min", "opt", "max"), (1, 3, height, width))
    return manifest.model_copy(update={"profiles": (*manifest.profiles, ProfileRecord(**shapes))})


def test_an_image_size_it_does_not_hold_is_named_and_the_command_it_gives_mends_it(
    engines: Path, manifest: Manifest, tmp_path: Path
) -> None:
    path, plan = tmp_path / "ref.npz", tmp_path / "a.plan"
    save_reference(SaveOptions(path, model=str(engines.parent / "model")))
    larger = with_profile(manifest, 96, 128)
    with pytest.raises(UsageError, match=r"no outputs at 96x128, which profiles of .*a\.plan need") as caught:
        saved_basis(read_reference(path), larger, plan)
    assert caught.value.run is not None
    words = shlex.split(caught.value.run, comments=True)
    assert words[0] == "face3d-trt"
    subprocess.run([sys.executable, "-m", "face3d_trt", *words[1:]], check=True, timeout=120, capture_output=True)
    truths = saved_basis(read_reference(path), larger, plan).truths
    assert [truths.at(*size).crops.shape for size in ((224, 224), (96, 128))] == [(8, 224, 224, 3), (8, 96, 128, 3)]


def test_with_plans_their_profiles_say_the_sizes(engines: Path, manifest: Manifest, tmp_path: Path) -> None:
    plan = tmp_path / "a.plan"  # its manifest is enough
    with_profile(manifest, 96, 128).write(manifest_path(plan))
    model = str(engines.parent / "model")
    record = save_reference(SaveOptions(tmp_path / "ref.npz", (plan, engines / FP16), model=model, sizes=((64, 64),)))
    assert record.sizes == ((64, 64), (96, 128), (224, 224))
    assert record.model == manifest.model


def test_a_mesh_from_bytes_is_saved_whole(engines: Path, tmp_path: Path) -> None:
    model = str(engines.parent / "model")
    options = SaveOptions(tmp_path / "ref", model=model, outputs="mesh", input="uint8", sizes=((64, 64),))
    record = save_reference(options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ref"]  # the name that was given, and nothing beside it
    outputs = read_reference(tmp_path / "ref").outputs[64, 64]
    shape = (8, record.model.vertices, 3)
    assert {name: rows.shape for name, rows in outputs.items()} == {
        "coeffs": (8, 257),
        "vertex": shape,
        "texture": shape,
    }


def test_what_contradicts_the_plans_is_refused(engines: Path, manifest: Manifest, tmp_path: Path) -> None:
    file, plan, model = tmp_path / "ref.npz", tmp_path / "a.plan", engines.parent / "model"
    changed(manifest, input="uint8").write(manifest_path(plan))
    with pytest.raises(UsageError, match="differ in input"):
        save_reference(SaveOptions(file, (plan, engines / FP16)))
    with pytest.raises(UsageError, match=r"--outputs mesh: .*a\.plan has coeffs"):
        save_reference(SaveOptions(file, (plan,), outputs="mesh"))
    with pytest.raises(UsageError, match="neither a plan nor a model"):
        save_reference(SaveOptions(file))
    changed(manifest, checkpoint_sha256="0" * 64).write(manifest_path(plan))
    with pytest.raises(ModelError, match="another checkpoint"):
        save_reference(SaveOptions(file, (plan,), model=str(model)))
    with pytest.raises(StorageError, match="cannot write"):
        save_reference(SaveOptions(tmp_path, model=str(model)))
    assert not file.exists()


def same(one: ReferenceFile, other: ReferenceFile) -> bool:
    return one.record == other.record and all(
        np.array_equal(rows, other.outputs[size][name])
        for size, outputs in one.outputs.items()
        for name, rows in outputs.items()
    )


@pytest.fixture(scope="module")
def small(engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "ref.npz"
    save_reference(SaveOptions(path, model=str(engines.parent / "model"), sizes=((64, 64),), bases=False))
    return path


def test_a_damaged_file_is_refused_wherever_it_is_hit(small: Path, tmp_path: Path) -> None:
    """A flipped byte may hit a date of the archive, which says nothing; it never changes what is read."""
    data, whole, spoilt = small.read_bytes(), read_reference(small), tmp_path / "spoilt.npz"
    for share in range(10):
        spoilt.write_bytes(data[: len(data) * share // 10])
        with pytest.raises(UsageError, match="damaged"):
            read_reference(spoilt)
    rng = np.random.default_rng(0)
    places = [*rng.integers(0, len(data), 60), *range(0, 64, 2), *range(len(data) - 300, len(data), 3)]
    refused = 0
    for place in places:
        spoilt.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        try:
            assert same(read_reference(spoilt), whole)
        except UsageError:
            refused += 1
    assert refused > 60


def test_values_that_were_changed_in_a_whole_archive_are_noticed(small: Path, tmp_path: Path) -> None:
    with np.load(small) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["64x64.coeffs"] = arrays["64x64.coeffs"] + np.float32(1e-3)
    np.savez(tmp_path / "changed.npz", **arrays)
    with pytest.raises(UsageError, match="its content is not what was written"):
        read_reference(tmp_path / "changed.npz")


def test_other_files_are_no_reference(tmp_path: Path) -> None:
    array, pickled = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros(3))
    np.savez(pickled, record=np.array([{}], dtype=object), sha256=np.zeros(32, np.uint8))
    for content in (b"", b"no archive", array.getvalue(), pickled.getvalue()):
        (tmp_path / "other.npz").write_bytes(content)
        with pytest.raises(UsageError, match="is not a reference file") as caught:
            read_reference(tmp_path / "other.npz")
        assert "--save-reference" in str(caught.value)
    with pytest.raises(UsageError, match="No such file"):
        read_reference(tmp_path / "absent.npz")


def near_copies(folder: Path, count: int) -> Path:
    """One face, shifted by a few pixels and a little noisy, as in a video of somebody who sits still."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    face = sample_crops()[3].astype(float)
    for index in range(count):
        moved = np.roll(face, rng.integers(-3, 4, 2), axis=(0, 1)) + rng.normal(0, 3, face.shape)
        Image.fromarray(moved.clip(0, 255).astype(np.uint8)).save(folder / f"{index}.png")
    return folder


def test_near_copies_of_one_face_are_told_from_different_faces(
    engines: Path, direct: dict[str, Verdict], tmp_path: Path
) -> None:
    assert not any("differ little" in note for note in direct[FP16].notes)
    folder = near_copies(tmp_path / "one", 10)
    verdict = compare(CompareOptions(engines / FP16, images=folder))
    (note,) = [note for note in verdict.notes if "differ little" in note]
    assert "different people" in note
    save_reference(SaveOptions(tmp_path / "ref.npz", images=folder, model=str(engines.parent / "model")))
    assert note in compare(CompareOptions(engines / FP16, reference=tmp_path / "ref.npz")).notes


def test_calibration_is_recognised_by_the_folder_as_it_was_named(
    engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built with `--calib faces` in a folder, and saved there from the first pictures of it."""
    shutil.copytree(engines.parent / "faces", tmp_path / "faces")
    monkeypatch.chdir(tmp_path)
    save_reference(SaveOptions(Path("ref.npz"), images=Path("faces"), model=str(engines.parent / "model"), limit=8))
    manifest = Manifest.read(manifest_path(engines / INT8))
    assert manifest.calibration is not None
    for folder, expected in (("faces", True), ("faces/", True), ("others/faces", False)):
        calibration = manifest.calibration.model_copy(update={"folder": folder})
        plan = manifest.model_copy(update={"calibration": calibration})
        notes = saved_basis(read_reference(Path("ref.npz")), plan, Path("a.plan")).notes
        assert any("calibrated on these very pictures" in note for note in notes) == expected
