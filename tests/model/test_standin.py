import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import loadmat

from face3d_trt.errors import UsageError
from face3d_trt.faces.samples import sample_crops
from face3d_trt.model.load import load_model
from face3d_trt.model.network import ReconNet
from face3d_trt.model.procedural import disc, triangulate
from face3d_trt.model.standin import SIZES, StandinOptions, write_standin
from face3d_trt.model.standin_files import generator_state
from face3d_trt.names import GROUPS


def parameters(state):
    return sum(v.numel() for v in state.values())


def test_the_full_size_is_upstream_s():
    """Published counts: 24,034,625 parameters under 332 keys, 70,789 triangles, displacement networks of 11.39 M."""
    network = ReconNet(SIZES["full"].width)
    assert parameters(dict(network.named_parameters())) == 24_034_625
    assert len(network.state_dict()) == 332
    generator = torch.Generator().manual_seed(0)
    assert parameters(generator_state(6, 3, SIZES["full"].generator, generator)) == 11_387_587
    assert parameters(generator_state(9, 1, SIZES["full"].generator, generator)) == 11_390_721
    triangles, fans = triangulate(disc(SIZES["full"].vertices, SIZES["full"].boundary))
    assert (len(triangles), fans.shape) == (70_789, (35_709, 8))


def test_key_names_are_torchvision_s_under_backbone(standin):
    state = torch.load(standin / "pytorch_model.pt", weights_only=True)
    assert set(state) == {"net_recon", "mid_net", "high_net", "alpha", "beta"}
    assert "backbone.layer4.2.bn3.running_var" in state["net_recon"]
    assert "backbone.layer2.0.downsample.1.weight" in state["net_recon"]
    assert "model.18.conv_block.6.bias" in state["mid_net"]
    assert state["high_net"]["model.26.weight"].shape[0] == 1


def test_the_files_are_upstream_s(standin):
    names = {str(p.relative_to(standin)) for p in standin.rglob("*") if p.is_file()}
    assert names == {
        "configuration.json",
        "pytorch_model.pt",
        "assets/BFM_model_front.mat",
        "assets/BBRegressorParam_r.mat",
        "assets/bfm_tex_mean2.npy",
        "assets/bfm_texmap_base2.npy",
        "assets/bfm_uvs2.npy",
        "assets/similarity_Lm3D_all.mat",
        "assets/template_bfm.obj",
    }
    mat = loadmat(standin / "assets/BFM_model_front.mat")
    assert mat["point_buf"].max() == len(mat["tri"]) + 1  # the pad value
    assert mat["tri"].min() == 1


def test_every_vertex_lists_its_own_triangles(standin):
    mat = loadmat(standin / "assets/BFM_model_front.mat")
    triangles, fans = mat["tri"].astype(int), mat["point_buf"].astype(int)
    for vertex in (0, 17, 3000, 5999):
        listed = sorted(f for f in fans[vertex] if f <= len(triangles))
        assert listed == sorted(np.flatnonzero((triangles == vertex + 1).any(1)) + 1)


def test_different_pictures_give_different_coefficients(standin):
    pictures = torch.from_numpy(sample_crops()).permute(0, 3, 1, 2).float() / 255
    with torch.inference_mode():
        coeffs = load_model(standin).network(pictures).numpy()
    for group, part in GROUPS.items():
        assert coeffs[:, part].std(0).mean() > 0.03, group
    assert np.abs(coeffs[0] - coeffs[2]).mean() > 0.1


def test_it_looks_like_a_face(standin):
    """The detector finds the render of the mean face, with its eyes above its mouth."""
    from face3d_trt.faces.detect import detector
    from face3d_trt.model.render import Renderer

    model = load_model(standin).morphable
    coeffs = torch.zeros(1, 257)
    coeffs[:, [229, 238, 247]] = 0.35
    pixels = (Renderer(model)(coeffs, torch.full((1, 3, 224, 224), 0.4))[0].permute(1, 2, 0).numpy() * 255).astype(
        np.uint8
    )
    (face,) = detector("mtcnn").detect(pixels, "render")
    landmarks = model.landmarks(model.vertex(coeffs))[0].numpy()
    five = [landmarks[[36, 39]].mean(0), landmarks[[42, 45]].mean(0), landmarks[30], landmarks[48], landmarks[54]]
    assert np.abs(face.points - five).max() < 12


def test_the_same_seed_gives_the_same_weights_and_another_does_not(standin, tmp_path):
    write_standin(tmp_path / "first", StandinOptions(seeded=True))
    write_standin(tmp_path / "again", StandinOptions(seeded=True))
    write_standin(tmp_path / "other", StandinOptions(seeded=True, seed=1))
    first, again, other = (
        torch.load(d / "pytorch_model.pt", weights_only=True)["net_recon"]
        for d in (tmp_path / "first", tmp_path / "again", tmp_path / "other")
    )
    key = "backbone.layer1.0.conv1.weight"
    assert torch.equal(first[key], again[key])
    assert not torch.equal(first[key], other[key])


def test_it_is_reused_by_content_and_remade_when_damaged(tmp_path):
    directory = tmp_path / "model"
    assert write_standin(directory)
    assert not write_standin(directory)
    (directory / "pytorch_model.pt").write_bytes(b"damaged")
    assert write_standin(directory)
    load_model(directory)


def test_another_directory_is_never_overwritten(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds .*precious\.txt"):
        write_standin(tmp_path)
    (tmp_path / "precious.txt").rename(tmp_path / "configuration.json")
    with pytest.raises(UsageError, match="another model"):
        write_standin(tmp_path)
    assert (tmp_path / "configuration.json").read_text() == "mine"


def test_a_former_stand_in_with_a_file_of_the_user_s_is_left_alone(standin, tmp_path):
    directory = shutil.copytree(standin, tmp_path / "model")
    (directory / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        write_standin(directory, StandinOptions(seeded=True))
    assert (directory / "notes.txt").read_text() == "mine"
    assert load_model(directory).weights == "learned"


def test_the_current_folder_and_a_link_can_be_named(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    assert write_standin(Path())
    assert not write_standin(tmp_path / "link")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "model"]
