from __future__ import annotations

import numpy as np
import pytest

from face3d_trt.errors import GraphError, MissingError, ModelError, UsageError
from face3d_trt.faces.template import find_template
from face3d_trt.records import ModelInfo


@pytest.fixture
def graph(tmp_path, template):
    """An ONNX file that copies its input and carries the facts that `export` writes."""
    onnx = pytest.importorskip("onnx")
    from face3d_trt.graph.info import write_info

    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("input", "coeffs")]
    copy = onnx.helper.make_node("Identity", ["input"], ["coeffs"])
    model = onnx.helper.make_model(onnx.helper.make_graph([copy], "copy", values[:1], values[1:]))
    info = ModelInfo(
        source="here",
        revision=None,
        weights="seeded",
        checkpoint_sha256="0" * 64,
        width=16,
        vertices=5,
        outputs="coeffs",
        input="float32",
        template=tuple(map(tuple, template.tolist())),
        version="0",
    )
    write_info(model, info)
    onnx.save(model, tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


def test_the_template_of_a_graph_is_the_one_it_carries(graph, template):
    assert np.array_equal(find_template(onnx=graph), template)


def test_the_template_of_a_model_has_eyes_as_means_of_their_corners(tmp_path):
    io = pytest.importorskip("scipy.io")
    points = np.random.default_rng(0).normal(size=(68, 3))
    (tmp_path / "assets").mkdir()
    io.savemat(tmp_path / "assets/similarity_Lm3D_all.mat", {"lm": points})
    found = find_template(model=tmp_path)
    # In the 68 points, counted from 1: eye corners 37, 40 and 43, 46; nose tip 31; mouth corners 49, 55.
    wanted = [(points[36] + points[39]) / 2, (points[42] + points[45]) / 2, points[30], points[48], points[54]]
    assert np.allclose(found, wanted)


def test_what_is_missing_or_foreign_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingError, match=r"engines/face3d_resnet50\.onnx is not there"):
        find_template()
    (tmp_path / "b.onnx").write_bytes(b"no graph")
    with pytest.raises(GraphError, match=r"b\.onnx"):
        find_template(onnx=tmp_path / "b.onnx")
    with pytest.raises(ModelError):
        find_template(model=tmp_path)
    with pytest.raises(UsageError, match="both name"):
        find_template(onnx=tmp_path / "b.onnx", model=tmp_path)
