from __future__ import annotations

import json

import numpy as np
import pytest
import trimesh
from tests.reconstruct.known import make_coeffs, take

from face3d_trt.decode import CAMERA_Z, FOCAL_PX
from face3d_trt.names import GROUPS
from face3d_trt.optional import require
from face3d_trt.reconstruct.coeffs import read_coeffs
from face3d_trt.reconstruct.objtext import rows
from face3d_trt.reconstruct.products import IDENTITY, ProductOptions, make_products

EVERYTHING = frozenset({"coeffs", "mesh", "texture", "overlay"})
RED, BLUE = (200, 30, 30), (30, 30, 200)


def red_above_blue(uv):
    """The upper half of the face red, the lower blue."""
    return np.where(uv[:, 1:] > 0.5, RED, BLUE)


@pytest.fixture(scope="module")
def taken(decoder):
    return take(decoder, make_coeffs(), red_above_blue, scale=2)


def written(decoder, taken, folder, save=EVERYTHING, **options):
    chosen = ProductOptions(frozenset(save), texture_size=256, **options)
    files = make_products(decoder, taken.photo, taken.crop_from_photo, taken.coeffs, "face", chosen, {"photo": "a.jpg"})
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return files


def check_colours(decoder, found):
    """Colours of vertices (V, 3+) as another program sees them: red on the forehead, blue on the chin."""
    front = np.abs(decoder.uv - 0.5).max(axis=1) < 0.25
    for there, colour in ((decoder.uv[:, 1] > 0.6, RED), (decoder.uv[:, 1] < 0.3, BLUE)):
        assert np.abs(found[front & there, :3].astype(int) - colour).mean() < 12


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_an_obj_reloads_with_its_texture(decoder, taken, tmp_path, kind):
    files = written(decoder, taken, tmp_path, texture_format=kind)
    assert list(files) == ["face.obj", "face.mtl", f"face.{kind}", "face.overlay.jpg", "face.coeffs.json"]
    assert f"map_Kd face.{kind}" in files["face.mtl"].decode().splitlines()
    mesh = trimesh.load(tmp_path / "face.obj", process=False, maintain_order=True)
    face = decoder.decode(taken.coeffs)
    assert np.abs(mesh.vertices - 100 * face.shape).max() < 1e-4  # mm, in the same order
    assert np.array_equal(mesh.faces, decoder.triangles)
    assert np.abs(mesh.visual.uv - decoder.uv).max() < 1e-6
    assert np.abs(mesh.vertex_normals - face.normals).max() < 1e-3
    assert mesh.visual.material.image.size == (256, 256)
    check_colours(decoder, mesh.visual.to_color().vertex_colors)


def test_a_glb_has_its_texture_inside_and_is_in_metres(decoder, taken, tmp_path):
    files = written(decoder, taken, tmp_path, format="glb")
    assert list(files) == ["face.glb", "face.overlay.jpg", "face.coeffs.json"]
    mesh = trimesh.load(tmp_path / "face.glb", process=False, force="mesh")
    face = decoder.decode(taken.coeffs)
    assert 0.15 < np.ptp(mesh.vertices[:, 1]) < 0.3  # a face is some 20 cm high
    assert np.abs(mesh.vertices - 0.1 * face.shape).max() < 1e-6
    assert np.array_equal(mesh.faces, decoder.triangles)
    assert mesh.visual.material.baseColorTexture.size == (256, 256)
    check_colours(decoder, mesh.visual.to_color().vertex_colors)


def test_a_ply_has_the_photos_colours(decoder, taken, tmp_path):
    files = written(decoder, taken, tmp_path, save={"mesh"}, format="ply")
    assert list(files) == ["face.ply"]
    mesh = trimesh.load(tmp_path / "face.ply", process=False)
    assert np.abs(mesh.vertices - 100 * decoder.decode(taken.coeffs).shape).max() < 1e-4
    check_colours(decoder, mesh.visual.vertex_colors)


@pytest.mark.parametrize("kind", ["obj", "glb"])
def test_a_mesh_without_its_texture_is_geometry(decoder, taken, tmp_path, kind):
    files = written(decoder, taken, tmp_path, save={"mesh"}, format=kind)
    assert list(files) == [f"face.{kind}"]
    mesh = trimesh.load(tmp_path / f"face.{kind}", process=False, force="mesh")
    assert (len(mesh.vertices), len(mesh.faces)) == (len(decoder.uv), len(decoder.triangles))


def test_a_texture_alone(decoder, taken, tmp_path):
    assert list(written(decoder, taken, tmp_path, save={"texture"}, format="glb")) == ["face.png"]


def test_surfaces_look_outwards(decoder, taken, tmp_path):
    """Programs that hide back faces show the face from the front: counter-clockwise, towards +z."""
    written(decoder, taken, tmp_path, save={"mesh"})
    mesh = trimesh.load(tmp_path / "face.obj", process=False, maintain_order=True)
    assert np.average(mesh.face_normals[:, 2], weights=mesh.area_faces) > 0.4


def test_the_coefficient_file_tells_all_that_another_program_needs(decoder, taken, tmp_path):
    """From the file alone: coefficients bit by bit, and where a vertex of the mesh lies in the photo."""
    files = written(decoder, taken, tmp_path)
    data = files["face.coeffs.json"]
    assert np.array_equal(read_coeffs(data), taken.coeffs)
    content = json.loads(data)
    assert {name: len(values) for name, values in content["coefficients"].items()} == {
        name: part.stop - part.start for name, part in GROUPS.items()
    }
    mesh = trimesh.load(tmp_path / "face.obj", process=False, maintain_order=True)
    world = np.c_[mesh.vertices / content["pose"]["camera"]["unit_mm"], np.ones(len(mesh.vertices))]
    x, y, z, _ = (world @ np.array(content["pose"]["head_to_world"]).T).T
    camera = content["pose"]["camera"]
    assert (camera["focal_px"], camera["z"]) == (FOCAL_PX, CAMERA_Z)
    crop = camera["centre_px"] + camera["focal_px"] * np.stack([x, -y]) / (camera["z"] - z)
    forth = np.vstack([content["alignment"]["crop_from_photo"], (0, 0, 1)])
    place = np.linalg.solve(forth, np.vstack([crop, np.ones(len(x))]))[:2].T
    column, row = np.rint(place[decoder.basis.keypoints]).astype(int).T
    height, width = content["alignment"]["photo"]
    assert (height, width) == taken.photo.shape[:2]
    for colour, part in ((RED, slice(17, 27)), (BLUE, slice(48, 60))):  # brows, mouth
        assert (taken.photo[row[part], column[part]] == colour).all()
    assert content["source"] == {"photo": "a.jpg"}
    assert content["texture"]["from_photo"] > 0.5


def test_numbers_of_every_size_are_written_as_they_are():
    values = np.array([[0.0, -0.00004, 0.00006], [-999.9999, 1234.5, -0.5], [1e-9, 9999.9999, -1]])
    text = rows("v", values).decode()
    lines = [line.split() for line in text.splitlines()]
    assert [line[0] for line in lines] == ["v"] * 3
    assert np.abs(np.array([line[1:] for line in lines], float) - values).max() < 5.1e-5


def test_the_overlay_is_the_mesh_on_the_photo(decoder, taken, tmp_path):
    cv2 = require("cv2", "reconstruct", "")
    written(decoder, taken, tmp_path, save={"overlay"})
    picture = cv2.imread(str(tmp_path / "face.overlay.jpg"))[..., ::-1].astype(int)
    assert picture.shape == taken.photo.shape
    changed = np.abs(picture - taken.photo).max(axis=2) > 25  # JPEG blurs colours at edges
    face = (taken.photo != 90).any(axis=2)
    assert changed[face].mean() > 0.97
    assert changed[~face].mean() < 0.03


def test_an_overlay_of_a_large_photo_is_small(decoder):
    cv2 = require("cv2", "reconstruct", "")
    photo = np.zeros((3000, 2000, 3), np.uint8)
    chosen = ProductOptions(frozenset({"overlay"}))
    data = make_products(decoder, photo, IDENTITY * 0.1, make_coeffs(), "a", chosen)["a.overlay.jpg"]
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape == (1024, 683, 3)
