"""The typed graph and its record: made once for the same content."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import onnx
import pytest
from tests.tiny import CONVOLUTIONS, Recorder, tiny_graph, write_crops, write_tiny

from face3d_trt.errors import CalibrationError, GraphError, StorageError, UsageError
from face3d_trt.files import sha256_file
from face3d_trt.graph.precision import PrecisionOptions, record_path, typed_graph
from face3d_trt.records import TypedRecord


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "face.onnx")


@pytest.fixture
def calib(tmp_path: Path) -> Path:
    return write_crops(tmp_path / "calib", 4)


def _int8(folder: Path, method: str = "max") -> PrecisionOptions:
    return PrecisionOptions("int8", folder, method)  # type: ignore[arg-type]


def test_the_record_says_how_the_graph_came_to_be(source: Path, calib: Path, tmp_path: Path) -> None:
    report = Recorder()
    output = tmp_path / "out.int8.onnx"
    record = typed_graph(source, output, _int8(calib), report)
    assert record.sha256 == sha256_file(output)
    assert record.source_sha256 == sha256_file(source)
    assert record.calibration is not None
    assert (record.calibration.images, record.calibration.skipped, record.calibration.method) == (4, 0, "max")
    assert record.nodes["int8"] >= CONVOLUTIONS
    assert record.int8_macs == 1.0
    assert set(record.tools) == {"nvidia-modelopt", "onnx", "onnx-graphsurgeon", "onnxruntime"}
    assert any("500 and more" in text for text in report.warnings)
    assert f"{CONVOLUTIONS} of {CONVOLUTIONS} convolutions in int8" in " ".join(report.stages)


def test_the_same_content_is_reused_whatever_the_files_are_called(source: Path, calib: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.int8.onnx"
    first = typed_graph(source, output, _int8(calib))
    before = output.stat().st_mtime_ns
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for index, picture in enumerate(sorted(calib.iterdir(), reverse=True)):
        shutil.copy(picture, moved / f"other{index}.png")
    copy = shutil.copy(source, tmp_path / "renamed.onnx")
    report = Recorder()
    again = typed_graph(Path(copy), output, _int8(moved), report)
    assert (again.sha256, again.fingerprint) == (first.sha256, first.fingerprint)
    assert again.calibration is not None
    assert again.calibration.folder == str(moved)  # the old one may be gone
    assert TypedRecord.read(record_path(output)) == again
    assert output.stat().st_mtime_ns == before
    assert any(text.startswith("reused") for text in report.stages)


@pytest.mark.parametrize("change", ["pictures", "method", "graph", "precision"])
def test_other_content_is_not_reused(source: Path, calib: Path, tmp_path: Path, change: str) -> None:
    output = tmp_path / "out.onnx"
    first = typed_graph(source, output, _int8(calib))
    options = _int8(calib)
    if change == "pictures":
        shutil.rmtree(calib)
        write_crops(calib, 4, seed=9)
    elif change == "method":
        options = _int8(calib, "entropy")
    elif change == "graph":
        onnx.save(tiny_graph(seed=1), source)
    else:
        options = PrecisionOptions("fp32")
    report = Recorder()
    second = typed_graph(source, output, options, report)
    assert second.fingerprint != first.fingerprint
    assert second.sha256 == sha256_file(output)
    if change != "method":  # on so small a network both methods may find the same ranges
        assert second.sha256 != first.sha256
    assert any(text.startswith("stale") for text in report.stages)
    if change == "pictures":
        assert any("calibrated again" in text for text in report.stages)


def test_a_graph_changed_by_hand_is_made_again_with_a_warning(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.fp32.onnx"
    first = typed_graph(source, output, PrecisionOptions("fp32"))
    model = onnx.load(output)
    model.doc_string = "by hand"
    onnx.save(model, output)
    report = Recorder()
    assert typed_graph(source, output, PrecisionOptions("fp32"), report).sha256 == first.sha256 == sha256_file(output)
    assert any("was changed since it was made" in text for text in report.warnings)


def test_a_damaged_record_is_not_trusted(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.fp32.onnx"
    first = typed_graph(source, output, PrecisionOptions("fp32"))
    record_path(output).write_text("{}")
    report = Recorder()
    assert typed_graph(source, output, PrecisionOptions("fp32"), report).sha256 == first.sha256
    assert any("cannot be read" in text for text in report.warnings)


def test_a_broken_picture_among_good_ones_is_named_and_counted(source: Path, calib: Path, tmp_path: Path) -> None:
    (calib / "broken.jpg").write_bytes(b"\xff\xd8\xff not a picture")
    report = Recorder()
    record = typed_graph(source, tmp_path / "out.int8.onnx", _int8(calib), report)
    assert record.calibration is not None
    assert (record.calibration.images, record.calibration.skipped) == (4, 1)
    assert any("broken.jpg" in text for text in report.warnings)


@pytest.mark.parametrize("kind", ["empty", "missing", "file"])
def test_an_unusable_calibration_folder_is_an_error_and_leaves_nothing(source: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "pictures"
    if kind == "empty":
        folder.mkdir()
    elif kind == "file":
        folder.write_text("no folder")
    output = tmp_path / "out.int8.onnx"
    with pytest.raises(CalibrationError) as caught:
        typed_graph(source, output, _int8(folder))
    assert str(folder) in str(caught.value)
    assert (f"--calib {tmp_path}" if kind == "file" else "face3d-trt calib") in str(caught.value)
    assert not output.exists()
    assert not record_path(output).exists()


def test_fp16_without_a_folder_uses_the_sample_faces(source: Path, tmp_path: Path) -> None:
    record = typed_graph(source, tmp_path / "out.fp16.onnx", PrecisionOptions("fp16"))
    assert record.calibration is None
    assert record.nodes["fp16"] >= CONVOLUTIONS


def test_fp16_names_every_tool_with_the_version_that_runs(source: Path, tmp_path: Path) -> None:
    """Whichever package brings ONNX Runtime: AutoCast runs it too."""
    import onnx_graphsurgeon
    import onnxruntime

    record = typed_graph(source, tmp_path / "out.fp16.onnx", PrecisionOptions("fp16"))
    assert record.tools["onnxruntime"] == onnxruntime.__version__
    assert record.tools["onnx-graphsurgeon"] == onnx_graphsurgeon.__version__
    assert "missing" not in record.tools.values()


def test_fp16_takes_the_same_faces_whatever_they_are_called(source: Path, tmp_path: Path) -> None:
    first = write_crops(tmp_path / "a", 7)
    other = tmp_path / "b"
    other.mkdir()
    for index, picture in enumerate(sorted(first.iterdir(), reverse=True)):
        shutil.copy(picture, other / f"{index}.png")
    output = tmp_path / "out.fp16.onnx"
    before = typed_graph(source, output, PrecisionOptions("fp16", first))
    assert typed_graph(source, output, PrecisionOptions("fp16", other)).fingerprint == before.fingerprint


def test_a_graph_made_under_another_name_beside_is_copied(source: Path, calib: Path, tmp_path: Path) -> None:
    first = typed_graph(source, tmp_path / "a.int8.onnx", _int8(calib))
    (tmp_path / "broken.onnx.json").write_text("{}")
    report = Recorder()
    output = tmp_path / "b.int8.onnx"
    assert typed_graph(source, output, _int8(calib), report) == first
    assert sha256_file(output) == first.sha256
    assert TypedRecord.read(record_path(output)) == first
    assert len(report.stages) == 1
    assert "a.int8.onnx" in report.stages[0]
    assert typed_graph(source, tmp_path / "c.int8.onnx", _int8(calib, "entropy")).fingerprint != first.fingerprint


def test_weights_in_another_file_are_refused(tmp_path: Path) -> None:
    """A hash of the graph would say nothing about them."""
    path = tmp_path / "face.onnx"
    onnx.save(tiny_graph(), path, save_as_external_data=True, location="face.weights", size_threshold=0)
    with pytest.raises(GraphError) as caught:
        typed_graph(path, tmp_path / "out.onnx", PrecisionOptions("fp32"))
    assert "face.weights" in str(caught.value)
    from face3d_trt.parity.runners import float32_runner

    with pytest.raises(GraphError, match=r"face\.weights"):
        float32_runner(path)


def test_fp16_by_flags_is_the_float32_graph_at_the_old_opset(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.fp16.onnx"
    record = typed_graph(source, output, PrecisionOptions("fp16", strongly_typed=False, opset=17))
    assert set(record.nodes) == {"fp32"}
    assert onnx.load(output).opset_import[0].version == 17


def test_int8_without_a_folder_and_an_unknown_method_are_usage_errors(
    source: Path, calib: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="pictures of faces"):
        typed_graph(source, tmp_path / "out.onnx", PrecisionOptions("int8"))
    with pytest.raises(UsageError) as caught:
        typed_graph(source, tmp_path / "out.onnx", _int8(calib, "percentile"))
    assert caught.value.allowed == "output, entropy, max"


def test_the_source_is_never_overwritten(source: Path) -> None:
    before = sha256_file(source)
    with pytest.raises(UsageError, match="overwrite"):
        typed_graph(source, source, PrecisionOptions("fp32"))
    assert sha256_file(source) == before


def test_a_foreign_graph_is_named(tmp_path: Path) -> None:
    model = tiny_graph()
    model.graph.output[0].name = "logits"
    model.graph.node[-1].output[0] = "logits"
    path = tmp_path / "foreign.onnx"
    onnx.save(model, path)
    with pytest.raises(GraphError, match=r"foreign\.onnx"):
        typed_graph(path, tmp_path / "out.onnx", PrecisionOptions("fp32"))


def test_a_full_disk_leaves_neither_graph_nor_record(source: Path, tmp_path: Path) -> None:
    """A limit on file size stands in for the full disk: the write breaks off in the middle, with EFBIG."""
    out = tmp_path / "out"
    out.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(StorageError, match="nothing was left"):
            typed_graph(source, out / "face.fp32.onnx", PrecisionOptions("fp32"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(out.iterdir()) == []
