"""The whole of `bisect`: its list, what it says, and that an interruption costs nothing."""

from __future__ import annotations

import io
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from rich.console import Console
from tests.bisect import damages
from tests.helpers import small_build
from tests.tiny import Recorder, crops, run, tiny_graph, write_crops, write_tiny

from face3d_trt.bisect.files import BisectOptions, bisect_files, find_graphs, graphs_of
from face3d_trt.bisect.run import bisect
from face3d_trt.bisect.search import fewest
from face3d_trt.bisect.show import lines, show
from face3d_trt.cli import main
from face3d_trt.engine import flavour as flavours
from face3d_trt.engine.build import BuildOptions, build_engine
from face3d_trt.engine.profile import Profile
from face3d_trt.errors import GraphError, UsageError
from face3d_trt.graph.info import read_info
from face3d_trt.graph.keep import keep_higher
from face3d_trt.graph.precision import PrecisionOptions, record_path, typed_graph
from face3d_trt.parity.judging import Judge, JudgeOptions, exact_judge
from face3d_trt.records import BisectRecord, Manifest, manifest_path

SMALL = (Profile.parse("min=1x3x224x224,opt=3x3x224x224,max=4x3x224x224"),)
NODE = "backbone.layer3.1.conv2/Conv"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A miniature and its int8 graph, whose weights are said to be learned so that it is gated."""
    model = tiny_graph()
    info = read_info(model).model_copy(update={"weights": "learned"})
    del model.metadata_props[:]
    model.metadata_props.add(key="face3d", value=info.model_dump_json())
    onnx.save(model, tmp_path / "face.onnx")
    typed_graph(
        tmp_path / "face.onnx",
        tmp_path / "face.int8.onnx",
        PrecisionOptions("int8", write_crops(tmp_path / "calib", 4), "max"),
    )
    return tmp_path / "face.int8.onnx"


def tight(folder: Path, share: float) -> Path:
    """Limits of the package with another one for the groups in int8."""
    import face3d_trt.parity as home

    content = json.loads((Path(str(home.__file__)).parent / "limits.json").read_text())
    content["int8"]["relative"] = {"default": share}
    content["int8"]["row"] = {"default": 10.0}
    content["int8"]["cosine"] = {"default": -1.0}
    path = folder / "limits.json"
    path.write_text(json.dumps(content))
    return path


def judge_of(typed: Path, limits: Path) -> Judge:
    onnx_file = typed.with_name("face.onnx")
    options = JudgeOptions(read_info(onnx_file), typed, "int8", typed.parent / "calib", limits=limits, limit=8)
    return exact_judge(onnx_file, options)


def errors(typed: Path, judge: Judge, names: tuple[str, ...]) -> float:
    """The largest error of a group with some nodes kept higher."""
    graphs = graphs_of(typed.with_name("face.onnx"), typed)
    judged = judge.graph(keep_higher(graphs.typed, graphs.exact, names), typed)
    return max(row.relative for row in judged.rows)


def test_the_list_makes_the_gate_hold_and_no_node_of_it_can_be_left_out(tiny: Path, tmp_path: Path) -> None:
    plain = errors(tiny, judge_of(tiny, tight(tmp_path, 1.0)), ())
    judge = judge_of(tiny, tight(tmp_path, 0.6 * plain))
    graphs = graphs_of(tiny.with_name("face.onnx"), tiny)
    record = bisect(graphs, judge)
    assert (record.passed_before, record.passed, record.channels) == (False, True, "RGB")
    names = tuple(entry.node for entry in record.keep)
    assert names
    assert judge.graph(keep_higher(graphs.typed, graphs.exact, names), tiny).passed
    for name in names:
        fewer = tuple(each for each in names if each != name)
        assert not judge.graph(keep_higher(graphs.typed, graphs.exact, fewer), tiny).passed
    losses = [each.loss for each in record.ranking]
    assert losses == sorted(losses, key=lambda loss: -(loss or 0))
    assert sum(each.share for each in record.ranking if each.node.endswith("/Conv")) == pytest.approx(1)
    assert bisect(graphs, judge, most=len(names)).passed
    assert len(names) == 1 or not bisect(graphs, judge, most=len(names) - 1).passed


def test_the_next_command_has_every_option_of_the_first_build(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And builds what was measured: a second bisection finds that nothing more has to be kept, and keeps the list."""
    pytest.importorskip("tensorrt_rtx", reason="the extra rtx is not installed")
    monkeypatch.setattr(flavours, "visible_gpus", lambda: ())
    plan = small_build(tiny.with_name("face.onnx"), "int8", tmp_path / "calib", method="max")
    limits = tight(tmp_path, 0.6 * errors(tiny, judge_of(tiny, tight(tmp_path, 1.0)), ()))
    options = BisectOptions(plan=plan, images=tmp_path / "calib", limits=limits, limit=8)
    record, written = bisect_files(options)
    first = Manifest.read(manifest_path(plan)).command
    assert record.build == f"{first} --keep {written} --images {tmp_path / 'calib'} --limits {limits}"
    assert lines(record)[-1] == f"next: {record.build}"
    bare = tmp_path / "bare" / "face.int8.next.onnx"  # as a build leaves it whose gate fails
    bare.parent.mkdir()
    for path in (tiny, record_path(tiny)):
        shutil.copy(path, bare.with_name(path.name.replace(tiny.name, bare.name)))
    from_graph, listed = bisect_files(replace(options, plan=None, typed=bare, onnx=tiny.with_name("face.onnx")))
    wanted = f"--calib {tmp_path / 'calib'} --calib-method max --keep {listed} -o {bare.with_name('face.int8.plan')}"
    assert wanted in from_graph.build
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", shlex.split(record.build))
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    again, _ = bisect_files(options)
    assert again.passed_before
    assert [entry.node for entry in again.keep] == [entry.node for entry in record.keep]
    assert "with nothing more kept higher" in lines(again)[-1]
    assert (
        build_engine(
            BuildOptions(tiny.with_name("face.onnx"), "int8", tmp_path / "calib", "max", SMALL, keep=written)
        ).typed_sha256
        == again.typed_sha256
    )


def test_what_no_list_can_reach_is_said(tiny: Path, tmp_path: Path) -> None:
    record = bisect(graphs_of(tiny.with_name("face.onnx"), tiny), judge_of(tiny, tight(tmp_path, 1e-7)))
    assert not record.passed
    assert record.keep == ()
    assert any("no list helps" in note for note in record.notes)


class _Interrupt(Recorder):
    """Ctrl-C after so many nodes."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def progress(self, text: str, done: int, total: int) -> None:
        super().progress(text, done, total)
        if text == "measuring nodes" and done == self.after:
            raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_where_it_was(tiny: Path, tmp_path: Path) -> None:
    options = BisectOptions(typed=tiny, images=tiny.parent / "calib", output=tmp_path / "keep.json")
    interrupted = _Interrupt(5)
    with pytest.raises(KeyboardInterrupt):
        bisect_files(options, interrupted)
    state = tmp_path / "keep.json.state"
    assert f"{state}: 5 nodes are measured; the same command goes on" in interrupted.stages[-1]
    assert len(json.loads(state.read_text())["nodes"]) == 5
    assert not (tmp_path / "keep.json").exists()
    report = Recorder()
    record, written = bisect_files(options, report)
    assert any("5 nodes were measured already" in text for text in report.stages)
    assert next(done for text, done, _ in report.steps if text == "measuring nodes") == 6
    assert not state.exists()
    assert BisectRecord.read(written) == record
    fresh, _ = bisect_files(options)
    assert fresh.ranking == record.ranking


@pytest.mark.parametrize("change", ["typed graph", "damaged"])
def test_a_state_of_something_else_is_left_aside(tiny: Path, tmp_path: Path, change: str) -> None:
    options = BisectOptions(typed=tiny, images=tiny.parent / "calib", output=tmp_path / "keep.json")
    with pytest.raises(KeyboardInterrupt):
        bisect_files(options, _Interrupt(5))
    if change == "damaged":
        (tmp_path / "keep.json.state").write_text('{"key": ')
    else:
        model = onnx.load(tiny)
        damages.louder(model, "backbone.layer1.0.conv1/Conv")
        onnx.save(model, tiny)
    report = Recorder()
    record, _ = bisect_files(options, report)
    assert next(done for text, done, _ in report.steps if text == "measuring nodes") == 1
    assert [each.node for each in record.ranking if each.damage] == ["backbone.layer1.0.conv1/Conv"] * (
        change == "typed graph"
    )


def test_a_damaged_plan_is_named_first_and_its_list_is_empty(engines: Path, tmp_path: Path) -> None:
    """Through a manifest, on the learned stand-in, judged in mm too."""
    own = Path(shutil.copytree(engines, tmp_path / "engines"))
    shutil.copytree(engines.parent / "model", tmp_path / "model")
    model = onnx.load(own / "face3d_resnet50.int8.onnx")
    damages.louder(model, NODE)
    onnx.save(model, own / "face3d_resnet50.int8.onnx")
    record, written = bisect_files(BisectOptions(plan=own / "face3d_resnet50.int8.plan", model=str(tmp_path / "model")))
    assert written == own / "face3d_resnet50.int8.keep.json"
    assert record.reference == "float32 PyTorch"
    assert record.ranking[0].node == NODE
    assert record.ranking[0].loss is not None
    assert record.ranking[0].loss > 2 * (record.ranking[1].loss or 0)
    assert not record.passed
    assert record.keep == ()
    said = "\n".join(lines(record))
    assert f"damaged {NODE}: given right inputs" in said
    assert "make the typed graph again" in said
    assert "FAILED" in said
    console = Console(width=88, record=True, file=io.StringIO())
    show(record, written, console)
    assert NODE in console.export_text()


def test_what_cannot_be_bisected_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="what is to be bisected"):
        find_graphs(BisectOptions())
    source = tiny.with_name("face.onnx")
    with pytest.raises(UsageError, match="computes in float32"):
        bisect_files(BisectOptions(typed=source, onnx=source, output=tmp_path / "keep.json"))
    other = tmp_path / "other.onnx"
    model = onnx.load(source)
    model.graph.node[0].name = "renamed"
    onnx.save(model, other)
    with pytest.raises(GraphError, match="has no node renamed"):
        bisect_files(BisectOptions(typed=tiny, onnx=other, output=tmp_path / "keep.json"))
    assert not (tmp_path / "keep.json").exists()


def test_the_search_leaves_out_what_is_not_needed_and_the_dearest_first() -> None:
    order, cost = list("abcdefgh"), dict.fromkeys("abcdefgh", 0.1) | {"b": 0.5}

    def needs(*wanted: str):  # type: ignore[no-untyped-def]
        return lambda names: set(wanted) <= set(names)

    assert fewest(order, cost, needs()) == ()
    assert fewest(order, cost, needs("a")) == ("a",)
    assert fewest(order, cost, needs("c", "f")) == ("c", "f")
    assert fewest(order, cost, lambda names: len(names) >= 2) == ("a", "b")
    assert fewest(order, cost, lambda names: {"a", "b"} & set(names) and {"c"} <= set(names)) == ("a", "c")
    assert fewest(order, cost, lambda names: False) is None


def test_the_front_for_tensorrt_86_is_no_damage_and_its_first_layer_can_be_kept(tmp_path: Path) -> None:
    """It leaves the division by 255 to the scale of the first Q."""
    source, typed = write_tiny(tmp_path / "face.onnx", layout="uint8"), tmp_path / "face.int8.onnx"
    options = PrecisionOptions("int8", write_crops(tmp_path / "calib", 4), "max", strongly_typed=False, opset=17)
    typed_graph(source, typed, options)
    record, _ = bisect_files(BisectOptions(typed=typed, images=tmp_path / "calib"))
    assert [each.node for each in record.ranking if each.damage] == []
    graphs = graphs_of(source, typed)
    kept = keep_higher(graphs.typed, graphs.exact, [each.node for each in record.ranking])
    exact, close = run(source, crops(2, seed=5))[0], run(kept, crops(2, seed=5))[0]
    assert np.abs(close - exact).max() < 1e-4 * np.abs(exact).max()
