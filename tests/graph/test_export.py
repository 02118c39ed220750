import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image
from tests.model.decode_in_numpy import decode
from tests.tiny import Recorder

from face3d_trt.errors import GraphError, MissingError, ModelError, StorageError, UsageError
from face3d_trt.faces.samples import sample_crops
from face3d_trt.graph.check import check_export, relative_error
from face3d_trt.graph.export import ExportOptions, export_onnx, to_onnx
from face3d_trt.graph.face import face_file_of
from face3d_trt.graph.info import read_info
from face3d_trt.model.load import load_model
from face3d_trt.model.reference import reference_module
from face3d_trt.reconstruct.products import face_path, load_face_decoder


def run(path, pixels):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {"input": pixels}), strict=True))


def as_input(crops):
    return np.ascontiguousarray(crops.transpose(0, 3, 1, 2), np.float32) / np.float32(255)


def test_names_and_dimensions_are_the_field_s(exported):
    model = onnx.load(exported)
    (image,), (coeffs,) = model.graph.input, model.graph.output
    dims = [d.dim_param or d.dim_value for d in image.type.tensor_type.shape.dim]
    assert (image.name, dims) == ("input", ["batch", 3, "height", "width"])
    assert (coeffs.name, coeffs.type.tensor_type.shape.dim[1].dim_value) == ("coeffs", 257)
    onnx.checker.check_model(model, full_check=True)


def test_nodes_are_called_after_their_modules_and_hold_no_traces(exported):
    model = onnx.load(exported)
    names = [n.name for n in model.graph.node]
    assert len(names) == len(set(names))
    assert sum(n.op_type == "Conv" for n in model.graph.node) == 60
    assert {"backbone.layer1.0.conv1/Conv", "backbone.layer4.0.downsample.0/Conv", "final_layers.6/Conv"} <= set(names)
    assert b"site-packages" not in model.SerializeToString()


def test_uint8_and_float32_graphs_agree(exported, exported_mesh):
    crops = sample_crops()[:3]
    np.testing.assert_allclose(run(exported_mesh, crops)["coeffs"], run(exported, as_input(crops))["coeffs"], atol=2e-4)


@pytest.mark.parametrize("batch", [1, 5])
def test_the_mesh_graph_decodes_as_the_published_formulas(exported_mesh, standin, batch):
    outputs = run(exported_mesh, sample_crops()[:batch])
    vertex, albedo, _ = decode(standin, outputs["coeffs"])
    assert outputs["vertex"].shape == outputs["texture"].shape == (batch, 6000, 3)
    np.testing.assert_allclose(outputs["vertex"], vertex, atol=1e-4)
    np.testing.assert_allclose(outputs["texture"], albedo, atol=1e-4)


def test_facts_of_the_model_stand_in_the_file(exported, exported_mesh, standin):
    info = read_info(exported)
    assert (info.weights, info.width, info.outputs, info.input) == ("learned", 16, "coeffs", "float32")
    assert info.source == str(standin)
    assert read_info(exported_mesh).vertices == 6000
    np.testing.assert_allclose(info.template, load_model(standin).template)


def test_a_coefficient_graph_holds_nothing_of_the_morphable_model(exported):
    largest = max(len(i.raw_data) for i in onnx.load(exported).graph.initializer)
    assert largest < 2_400_000  # the largest convolution; the bases have 10 MB


def test_the_face_file_beside_it_decodes_as_the_published_formulas(exported, standin):
    """What a machine without torch makes of the graph's coefficients."""
    decoder = load_face_decoder(
        face_path(exported.with_name("face3d_resnet50.fp16.plan")), read_info(exported).checkpoint_sha256
    )
    coeffs = run(exported, as_input(sample_crops()[:1]))["coeffs"]
    face = decoder.decode(coeffs[0])
    vertex, albedo, landmarks = decode(standin, coeffs)
    np.testing.assert_allclose(face.shape @ face.turn.T + face.place, vertex[0], atol=1e-4)
    np.testing.assert_allclose(face.albedo, albedo[0], atol=1e-4)
    np.testing.assert_allclose(face.crop[decoder.basis.keypoints], landmarks[0] - 0.5, atol=0.02)  # px
    assert decoder.record.uv == "model"
    assert np.array_equal(decoder.uv, np.load(standin / "assets" / "bfm_uvs2.npy"))


def test_a_model_without_a_morphable_one_has_no_face_file(standin, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(standin, bare, ignore=shutil.ignore_patterns("BFM_model_front.mat"))
    assert face_file_of(bare) is None


def test_exporting_twice_gives_the_same_bytes(standin):
    """A rebuilt graph must hash to the same stages."""
    graphs = [to_onnx(reference_module(load_model(standin), "coeffs", "float32"), ExportOptions()) for _ in range(2)]
    assert graphs[0].SerializeToString() == graphs[1].SerializeToString()


def test_a_changed_weight_does_not_pass_the_check(exported, standin, tmp_path):
    model = onnx.load(exported)
    weight = next(i for i in model.graph.initializer if i.name == "backbone.layer2.1.conv2.weight")
    weight.raw_data = (-onnx.numpy_helper.to_array(weight)).tobytes()
    onnx.save(model, tmp_path / "changed.onnx")
    reference = reference_module(load_model(standin), "coeffs", "float32")
    with pytest.raises(GraphError, match=r"coeffs\.\w+ of the exported graph differs"):
        check_export(tmp_path / "changed.onnx", reference, ExportOptions())


def test_a_fixed_dimension_does_not_pass_the_check(exported, standin, tmp_path):
    model = onnx.load(exported)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, tmp_path / "fixed.onnx")
    reference = reference_module(load_model(standin), "coeffs", "float32")
    with pytest.raises(GraphError, match="fixed a dimension"):
        check_export(tmp_path / "fixed.onnx", reference, ExportOptions())


def test_an_error_in_a_small_group_counts_against_that_group():
    want = np.ones((2, 257), np.float32) * 100
    want[:, 254:257] = 0.01
    got = want.copy()
    got[1, 256] += 0.001
    error, where = relative_error("coeffs", got, want)
    assert where == "coeffs.translation"
    assert error == pytest.approx(0.1, rel=1e-3)
    assert relative_error("coeffs", np.full_like(want, np.nan), want)[0] == np.inf


def test_without_model_and_hub_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("FACE3D_OFFLINE", "1")
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MissingError):
        export_onnx(ExportOptions(output=tmp_path / "out" / "a.onnx"))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_a_storage_error(standin, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="nothing was left"):
        export_onnx(ExportOptions(model=str(standin), output=tmp_path / "file" / "a.onnx"))


def test_an_output_that_is_a_folder_is_found_out_before_the_work(standin, tmp_path):
    report = Recorder()
    (tmp_path / "a.onnx").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        export_onnx(ExportOptions(model=str(standin), output=tmp_path / "a.onnx"), report)
    assert report.stages == []


def test_wrong_options_are_named(standin, tmp_path):
    with pytest.raises(UsageError, match="outputs 'normals'"):
        export_onnx(ExportOptions(model=str(standin), outputs="normals", output=tmp_path / "a.onnx"))
    with pytest.raises(UsageError, match=r"not an \.onnx file"):
        export_onnx(ExportOptions(model=str(standin), output=tmp_path / "a.plan"))
    with pytest.raises(ModelError):
        export_onnx(ExportOptions(model=str(tmp_path), output=tmp_path / "a.onnx"))


def test_foreign_files_are_told_apart(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "picture.png")
    with pytest.raises(GraphError, match="not an ONNX file"):
        read_info(tmp_path / "picture.png")
    with pytest.raises(GraphError, match="missing"):
        read_info(tmp_path / "none.onnx")
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in "xy"]
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph([node], "g", values[:1], values[1:])), tmp_path / "other.onnx"
    )
    with pytest.raises(GraphError, match="its inputs are x"):
        read_info(tmp_path / "other.onnx")
