import json
import shutil

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

from face3d_trt.errors import MissingError, ModelError
from face3d_trt.model.load import load_model, read_template
from face3d_trt.model.resolve import REVISION, resolve_model


@pytest.fixture
def directory(standin, tmp_path):
    return shutil.copytree(standin, tmp_path / "model")


def edit_checkpoint(directory, change):
    content = torch.load(directory / "pytorch_model.pt", weights_only=True)
    torch.save(change(content), directory / "pytorch_model.pt")


def edit_mat(directory, change):
    path = directory / "assets/BFM_model_front.mat"
    content = {k: v for k, v in loadmat(path).items() if not k.startswith("__")}
    change(content)
    savemat(path, content)


def coeffs_of(directory):
    with torch.inference_mode():
        return load_model(directory).network(torch.full((1, 3, 224, 224), 0.5))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda c: c["net_recon"],
        lambda c: {f"module.{k}": v for k, v in c["net_recon"].items()},
        lambda c: {"net_recon": {f"module.{k}": v for k, v in c["net_recon"].items()}},
    ],
    ids=["bare", "module-prefixed", "prefixed inside"],
)
def test_every_form_of_the_checkpoint_gives_the_same_network(directory, wrap):
    before = coeffs_of(directory)
    edit_checkpoint(directory, wrap)
    torch.testing.assert_close(coeffs_of(directory), before, rtol=0, atol=0)


def test_a_truncated_checkpoint_is_called_truncated(directory):
    path = directory / "pytorch_model.pt"
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(ModelError, match=r"100,000 bytes.*truncated"):
        load_model(directory)


def test_code_in_a_checkpoint_is_not_run(directory):
    class Evil:
        def __reduce__(self):
            return (print, ("this must never be printed",))

    torch.save({"net_recon": Evil()}, directory / "pytorch_model.pt")
    with pytest.raises(ModelError, match="weights_only"):
        load_model(directory)


def test_a_missing_key_and_a_wrong_shape_are_named(directory):
    def change(content):
        del content["net_recon"]["backbone.layer3.2.conv2.weight"]
        content["net_recon"]["final_layers.0.bias"] = torch.zeros(81)
        return content

    edit_checkpoint(directory, change)
    with pytest.raises(
        ModelError, match=r"missing backbone\.layer3\.2\.conv2\.weight.*final_layers\.0\.bias is \(81,\)"
    ):
        load_model(directory)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("text", "is a str, not a tensor"),
        (torch.full((16,), torch.nan), "not finite"),
        (torch.ones(16).long(), "is torch.int64"),
    ],
)
def test_weights_that_are_no_finite_floats_are_named(directory, value, said):
    def change(content):
        content["net_recon"]["backbone.bn1.weight"] = value
        return content

    edit_checkpoint(directory, change)
    with pytest.raises(ModelError, match=rf"backbone\.bn1\.weight.*{said}"):
        load_model(directory)


def test_a_checkpoint_of_something_else_is_named_by_its_keys(directory):
    edit_checkpoint(directory, lambda _: {"generator": {}, "epoch": torch.tensor(3)})
    with pytest.raises(ModelError, match="found epoch, generator"):
        load_model(directory)


def test_the_v1_layout_is_recognised(directory):
    (directory / "face_model_for_maas.mat").write_bytes(b"")
    with pytest.raises(ModelError, match="v1 layout") as caught:
        load_model(directory)
    assert REVISION in str(caught.value)


def test_the_head_layout_is_recognised(directory):
    (directory / "assets/3dmm").mkdir()
    with pytest.raises(ModelError, match="head-reconstruction"):
        load_model(directory)


def test_another_task_is_refused(directory):
    (directory / "configuration.json").write_text(json.dumps({"task": "face-detection"}))
    with pytest.raises(ModelError, match="face-detection"):
        load_model(directory)


def test_an_array_of_another_shape_is_named(directory):
    edit_mat(directory, lambda c: c.update(exBase=c["exBase"][:, :50]))
    with pytest.raises(ModelError, match=r"exBase has shape \(18000, 50\)"):
        load_model(directory)


def test_a_missing_array_is_named(directory):
    edit_mat(directory, lambda c: c.pop("texBase"))
    with pytest.raises(ModelError, match="no texBase"):
        load_model(directory)


def test_an_index_outside_the_mesh_is_refused(directory):
    edit_mat(directory, lambda c: c["keypoints"].__setitem__((0, 3), 6001))
    with pytest.raises(ModelError, match="keypoints points outside"):
        load_model(directory)


def test_coefficients_need_no_morphable_model(directory):
    (directory / "assets/BFM_model_front.mat").unlink()
    assert load_model(directory, morphable=False).morphable is None
    with pytest.raises(ModelError, match=r"BFM_model_front\.mat is missing"):
        load_model(directory)


def test_the_template_is_the_mean_of_the_eye_corners_and_three_landmarks(directory):
    marks = np.arange(204, dtype=np.float64).reshape(68, 3)
    savemat(directory / "assets/similarity_Lm3D_all.mat", {"lm": marks})
    want = [(marks[36] + marks[39]) / 2, (marks[42] + marks[45]) / 2, marks[30], marks[48], marks[54]]
    np.testing.assert_array_equal(read_template(directory), want)


def test_no_model_and_no_hub_names_both_ways_out(tmp_path, monkeypatch):
    monkeypatch.setenv("FACE3D_OFFLINE", "1")
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path))
    with pytest.raises(MissingError, match="FACE3D_OFFLINE") as caught:
        resolve_model("damo/cv_resnet50_face-reconstruction")
    assert "--model DIRECTORY" in str(caught.value)
    assert "standin" in str(caught.value)


def test_the_cache_is_used_without_the_hub(standin, tmp_path, monkeypatch):
    cached = tmp_path / "models/damo--cv_resnet50_face-reconstruction/snapshots" / REVISION
    shutil.copytree(standin, cached)
    monkeypatch.setenv("FACE3D_OFFLINE", "1")
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path))
    resolved = resolve_model("damo/cv_resnet50_face-reconstruction")
    assert resolved.directory.samefile(cached)
    assert resolved.revision == REVISION


@pytest.mark.parametrize("facts", [{"weights": "perfect"}, ["seeded"], {}])
def test_unknown_weights_in_a_configuration_are_refused(directory, facts):
    configuration = json.loads((directory / "configuration.json").read_text()) | {"face3d_trt": facts}
    (directory / "configuration.json").write_text(json.dumps(configuration))
    with pytest.raises(ModelError, match="says weights"):
        load_model(directory)


def test_a_mistyped_path_is_not_looked_for_on_the_hub(directory, monkeypatch):
    monkeypatch.chdir(directory.parent)
    with pytest.raises(ModelError, match="model/nothere is not a model directory"):
        resolve_model("model/nothere")


@pytest.mark.parametrize("name", ["./no/such", "/no/such", "no such thing", "a/b/c"])
def test_what_is_neither_directory_nor_id_is_an_error(name):
    with pytest.raises(ModelError, match="is not a model directory"):
        resolve_model(name)
