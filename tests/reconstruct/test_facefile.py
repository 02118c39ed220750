from __future__ import annotations

import numpy as np
import pytest

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.reconstruct.facefile import face_path, read_face_file, write_face_file
from face3d_trt.reconstruct.products import ProductOptions, load_face_decoder


@pytest.fixture
def path(face_file, tmp_path):
    path = tmp_path / "engines" / "a.face.npz"
    write_face_file(path, face_file)
    return path


def test_what_was_written_is_read(face_file, path):
    found = read_face_file(path, checkpoint_sha256=face_file.record.checkpoint_sha256)
    assert found.record == face_file.record
    assert np.array_equal(found.uv, face_file.uv)
    for name in face_file.decoder.names():
        assert np.array_equal(getattr(found.decoder, name), getattr(face_file.decoder, name))
    assert load_face_decoder(path).record == face_file.record


def test_a_damaged_file_is_refused(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match="damaged"):
        read_face_file(path)
    path.write_bytes(bytes(data[:1000]))
    with pytest.raises(UsageError, match="damaged"):
        read_face_file(path)


def test_another_models_file_is_refused(path):
    with pytest.raises(UsageError, match="another model"):
        read_face_file(path, checkpoint_sha256="1" * 64)


def test_it_is_found_beside_the_plan_and_the_graph(path):
    for artefact in ("a.onnx", "a.fp16.plan", "a.int8.trt86.onnx", "other.plan"):  # the last: there is only one
        assert face_path(path.with_name(artefact)) == path
    other = path.with_name("b.face.npz")
    other.write_bytes(b"")
    assert face_path(path.with_name("b.fp16.plan")) == other
    with pytest.raises(MissingError, match="2 others") as caught:
        face_path(path.with_name("c.fp16.plan"))
    assert "face3d-trt export" in str(caught.value)


def test_without_one_the_message_says_how_to_get_it(tmp_path):
    with pytest.raises(MissingError, match="no morphable model lies beside") as caught:
        face_path(tmp_path / "face3d_resnet50.fp16.plan")
    assert f"-o {tmp_path}/face3d_resnet50.onnx" in str(caught.value)
    with pytest.raises(MissingError, match="is not there"):
        load_face_decoder(tmp_path / "x.face.npz")


@pytest.mark.parametrize(
    "wrong", [{"save": {"photo"}}, {"save": ()}, {"format": "fbx"}, {"texture_size": 8192}, {"texture_format": "gif"}]
)
def test_options_that_do_not_exist_are_refused(wrong):
    wrong = {key: frozenset(value) if key == "save" else value for key, value in wrong.items()}
    with pytest.raises(UsageError, match="--"):
        ProductOptions(**wrong)
