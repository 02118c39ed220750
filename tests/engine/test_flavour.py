"""The flavour that this machine has, for real."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from onnx import TensorProto, helper
from tests.tiny import CONVOLUTIONS, Recorder, write_tiny

from face3d_trt.engine import flavour as module
from face3d_trt.engine.building import set_precision
from face3d_trt.engine.callbacks import listen, speaking_to
from face3d_trt.engine.flavour import Flavour, find_flavour
from face3d_trt.engine.gpu import visible_gpus
from face3d_trt.engine.messages import Messages
from face3d_trt.engine.profile import Profile
from face3d_trt.engine.values import Parsed, Recipe
from face3d_trt.errors import BuildError, GraphError, MissingError, PlanError, UsageError
from face3d_trt.optional import install_command
from face3d_trt.records import Gpu, Manifest


@pytest.fixture(scope="module")
def flavour() -> Flavour:
    return find_flavour()


@pytest.fixture
def rtx(monkeypatch: pytest.MonkeyPatch) -> Flavour:
    pytest.importorskip("tensorrt_rtx", reason="the extra rtx is not installed")
    monkeypatch.setattr(module, "visible_gpus", lambda: ())
    return find_flavour()


def _parse(flavour: Flavour, path: Path) -> Parsed:
    return flavour.parse(path.read_bytes(), str(path))


def test_without_a_gpu_it_is_rtx_and_it_types_by_the_graph(rtx: Flavour) -> None:
    assert rtx.name == "tensorrt_rtx"
    assert (rtx.strongly_typed, rtx.has_timing_cache, rtx.gpu) == (True, False, None)
    assert {"8.6", "8.9", "12.0"} <= set(rtx.targets)
    assert "9.0" not in rtx.targets  # RTX refuses Hopper
    assert "7.5" in rtx.targets
    assert "7.5" not in rtx.default_targets


def test_neither_flavour_is_an_error_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    with pytest.raises(MissingError) as caught:
        find_flavour()
    assert caught.value.run == install_command("gpu" if visible_gpus() else "rtx")
    assert caught.value.exit_code == 3


def test_rtx_in_the_place_of_tensorrt_says_why_and_that_this_gpu_cannot_run_it(
    rtx: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    for name, capability, refused in (("NVIDIA H200", "9.0", True), ("NVIDIA L4", "8.9", False)):
        gpu = Gpu(name=name, compute_capability=capability, driver="580")
        monkeypatch.setattr(module, "visible_gpus", lambda gpu=gpu: (gpu,))
        report = Recorder()
        assert find_flavour(report) == rtx
        assert len(report.warnings) == 1
        assert f"{name} ({capability})" in report.warnings[0]
        assert "import of tensorrt halted" in report.warnings[0]  # Python's reason
        assert ("do NOT run on this GPU" in report.warnings[0]) == refused


def test_which_plans_a_tensorrt_runs(rtx: Flavour) -> None:
    h200, l4 = (Gpu(name=n, compute_capability=c, driver="580") for n, c in (("H200", "9.0"), ("L4", "8.9")))
    here = replace(rtx, name="tensorrt", version="10.1", gpu=h200)
    plan = Manifest.model_construct(flavour="tensorrt", flavour_version="10.1", gpu=h200)
    assert here.can_run(plan) is None
    for change, words in (
        ({"flavour": "tensorrt_rtx"}, "a plan of TensorRT-RTX"),
        ({"flavour_version": "8.6.0"}, "built with TensorRT 8.6.0, and this machine has TensorRT 10.1"),
        ({"gpu": l4}, "for L4 (8.9), and this machine has H200 (9.0)"),
    ):
        assert words in str(here.can_run(plan.model_copy(update=change)))
    assert "this machine has TensorRT-RTX" in str(rtx.can_run(plan))
    assert "this machine has L4 (8.9)" in str(here.can_run(plan, l4))  # the second GPU is meant


def _gpu(name: str, capability: str) -> Gpu:
    return Gpu(name=name, compute_capability=capability, driver="580")


@pytest.mark.parametrize(
    ("built", "here", "runs"),
    [  # TensorRT's guide: later versions only, 8 up to 10, 10 up to 11
        ("8.6.0", "8.6.1", True),
        ("8.6.1", "8.6.0", False),
        ("8.6.1", "10.16.1", True),
        ("8.6.1", "11.4.0", False),
        ("10.9.0.34", "10.16.1", True),
        ("10.16.1", "10.9.0.34", False),
        ("10.16.1", "11.4.0", True),
        ("11.4.0", "10.16.1", False),
    ],
)
def test_a_version_compatible_plan_runs_with_later_versions(rtx: Flavour, built: str, here: str, runs: bool) -> None:
    h200 = _gpu("H200", "9.0")
    flavour = replace(rtx, name="tensorrt", version=here, gpu=h200)
    plan = Manifest.model_construct(flavour="tensorrt", flavour_version=built, gpu=h200)
    assert flavour.can_run(plan) is not None
    reason = flavour.can_run(plan.model_copy(update={"version_compat": True}))
    assert (reason is None) == runs
    assert runs or "that and later versions" in str(reason)


@pytest.mark.parametrize(("capability", "runs"), [("7.5", False), ("8.0", True), ("8.9", True), ("12.0", True)])
def test_a_hardware_compatible_plan_runs_on_ampere_and_newer(rtx: Flavour, capability: str, runs: bool) -> None:
    here = replace(rtx, name="tensorrt", version="10.1", gpu=_gpu("another", capability))
    plan = Manifest.model_construct(flavour="tensorrt", flavour_version="10.1", gpu=_gpu("H200", "9.0"))
    assert here.can_run(plan) is not None
    assert (here.can_run(plan.model_copy(update={"hardware_compat": True})) is None) == runs


def test_another_model_of_the_same_compute_capability_is_remarked_on(rtx: Flavour) -> None:
    h100, h200 = _gpu("H100", "9.0"), _gpu("H200", "9.0")
    here = replace(rtx, name="tensorrt", version="10.1", gpu=h200)
    plan = Manifest.model_construct(flavour="tensorrt", flavour_version="10.1", gpu=h100)
    assert here.can_run(plan) is None
    assert "tuned on H100 and runs on H200" in str(here.remark(plan))
    assert here.remark(plan, h100) is None


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"hardware_compat": True}, "--hardware-compat"),
        ({"version_compat": True}, "--version-compat"),
        ({"optimization_level": 5}, "--optimization-level"),
    ],
)
def test_rtx_refuses_what_means_nothing_to_it(rtx: Flavour, change: dict[str, object], option: str) -> None:
    """Its builder ignores the first and the last without a word, and lacks a library for the second."""
    recipe = Recipe("fp32", (Profile.default("float32"),))
    rtx.check_options(recipe)
    with pytest.raises(UsageError) as caught:
        rtx.check_options(replace(recipe, **change))  # type: ignore[arg-type]
    assert option in caught.value.problem
    gpu = replace(rtx, options=frozenset({option}), gpu=_gpu("H200", "9.0"))
    gpu.check_options(replace(recipe, **change))  # type: ignore[arg-type]


def test_a_turing_gpu_builds_nothing_hardware_compatible(rtx: Flavour) -> None:
    here = replace(rtx, options=frozenset({"--hardware-compat"}), gpu=_gpu("T4", "7.5"))
    with pytest.raises(UsageError, match=r"T4 has compute capability 7\.5"):
        here.check_options(Recipe("fp32", (Profile.default("float32"),), hardware_compat=True))


@pytest.mark.parametrize(("names", "obeys"), [(["conv"], False), (["conv", "decode/MatMul"], True)])
def test_flags_bind_tensorrt_only_where_the_decode_is_pinned(names: list[str], obeys: bool) -> None:
    """TensorRT 8.6 is nowhere without a GPU: the calls that would reach it."""
    tensor = SimpleNamespace(dtype="FLOAT")
    layers = [
        SimpleNamespace(
            name=name, type=SimpleNamespace(name="X"), num_outputs=1, precision=None, get_output=lambda index: tensor
        )
        for name in names
    ]
    flags: list[str] = []
    old = SimpleNamespace(
        BuilderFlag=SimpleNamespace(FP16="FP16", INT8="INT8", OBEY_PRECISION_CONSTRAINTS="OBEY"),
        DataType=SimpleNamespace(FLOAT="FLOAT"),
    )
    network = SimpleNamespace(num_layers=len(layers), get_layer=layers.__getitem__)
    set_precision(old, SimpleNamespace(set_flag=flags.append), network, "int8")
    assert flags == ["FP16", "INT8"] + ["OBEY"] * obeys
    assert [layer.precision for layer in layers] == [None] + ["FLOAT"] * obeys


def test_nodes_that_are_kept_are_pinned_by_name_under_the_fp16_flag() -> None:
    """Likewise; a name that no layer has would be kept nowhere, so it is an error."""
    tensor = SimpleNamespace(dtype="FLOAT")
    layers = [
        SimpleNamespace(
            name=name, type=SimpleNamespace(name="X"), num_outputs=1, precision=None, get_output=lambda index: tensor
        )
        for name in ("stem/Conv", "head/Conv")
    ]
    flags: list[str] = []
    old = SimpleNamespace(
        BuilderFlag=SimpleNamespace(FP16="FP16", OBEY_PRECISION_CONSTRAINTS="OBEY"),
        DataType=SimpleNamespace(FLOAT="FLOAT"),
    )
    network = SimpleNamespace(num_layers=len(layers), get_layer=layers.__getitem__)
    set_precision(old, SimpleNamespace(set_flag=flags.append), network, "fp16", ("head/Conv",))
    assert flags == ["FP16", "OBEY"]
    assert [layer.precision for layer in layers] == [None, "FLOAT"]
    with pytest.raises(BuildError, match="no layer for tail/Conv"):
        set_precision(old, SimpleNamespace(set_flag=flags.append), network, "fp16", ("tail/Conv",))


def test_while_one_speaks_with_tensorrt_another_waits(rtx: Flavour) -> None:
    first, second = Messages(), Messages()
    order: list[str] = []

    def other() -> None:
        with speaking_to(rtx.module, second):
            order.append("other")

    with speaking_to(rtx.module, first) as logger:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.2)
        logger.log(rtx.module.ILogger.ERROR, "mine")
        order.append("one")
    thread.join()
    assert order == ["one", "other"]
    assert (first.errors(), second.errors()) == (["mine"], [])


def test_a_running_engine_hears_its_own_thread_while_another_builds(rtx: Flavour) -> None:
    """And waits for nobody: the build holds the lock all the while."""
    builds, runs = Messages(), Messages()
    said = threading.Event()

    def run(logger: object) -> None:
        listen(runs)
        logger.log(rtx.module.ILogger.ERROR, "refused to run")  # type: ignore[attr-defined]
        said.set()

    with speaking_to(rtx.module, builds) as logger:
        thread = threading.Thread(target=run, args=(logger,))
        thread.start()
        assert said.wait(10)
        logger.log(rtx.module.ILogger.ERROR, "refused to build")
    thread.join()
    assert (builds.errors(), runs.errors()) == (["refused to build"], ["refused to run"])


def test_what_is_heard_is_of_the_call_at_hand(rtx: Flavour) -> None:
    with speaking_to(rtx.module, Messages()) as logger:
        pass
    inbox = Messages()
    listen(inbox)
    logger.log(rtx.module.ILogger.ERROR, "of an earlier call")
    listen(inbox)
    logger.log(rtx.module.ILogger.ERROR, "of this one")
    assert inbox.errors() == ["of this one"]


@pytest.mark.parametrize("plan", [b"", b"ONNX or anything", bytes(5000)])
def test_bytes_that_are_no_plan_are_refused_in_tensorrts_words(rtx: Flavour, plan: bytes) -> None:
    with pytest.raises(PlanError) as caught:
        rtx.load(plan, "odd.plan")
    assert "TensorRT-RTX" in caught.value.problem
    assert "odd.plan" in caught.value.problem
    assert "it gave no reason" not in caught.value.problem


def test_a_hopper_target_is_refused_with_the_list(rtx: Flavour) -> None:
    with pytest.raises(UsageError) as caught:
        rtx.choose_targets(("9.0",))
    assert "8.9" in caught.value.allowed
    assert rtx.choose_targets(("12.0", "8.9", "8.9")) == ("8.9", "12.0")


def test_the_network_has_the_names_types_and_shapes_of_the_graph(flavour: Flavour, tmp_path: Path) -> None:
    parsed = _parse(flavour, write_tiny(tmp_path / "a.onnx", outputs="mesh", layout="uint8"))
    assert [(t.name, t.dtype, t.shape) for t in parsed.inputs] == [("input", "uint8", (-1, -1, -1, 3))]
    assert [(t.name, t.dtype) for t in parsed.outputs] == [(n, "float32") for n in ("coeffs", "vertex", "texture")]


def test_a_plan_is_built_and_its_layers_are_counted(rtx: Flavour, tmp_path: Path) -> None:
    parsed = _parse(rtx, write_tiny(tmp_path / "a.onnx"))
    report = Recorder()
    recipe = Recipe("fp32", (Profile.default("float32"),), workspace=1 << 28, targets=("8.9",))
    built = rtx.build(parsed, recipe, report=report)
    assert len(built.plan) > 10_000
    assert built.timing_cache is None
    assert built.tally.convolutions == {"fp32": CONVOLUTIONS}
    assert report.steps[-1][1:] == (1000, 1000)


def test_what_the_parser_cannot_read_is_told_by_node(flavour: Flavour, tmp_path: Path) -> None:
    path = tmp_path / "strange.onnx"
    node = helper.make_node("Bogus", ["input"], ["coeffs"], name="backbone.odd/Bogus", domain="nowhere")
    graph = helper.make_graph(
        [node],
        "strange",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("coeffs", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("nowhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    with pytest.raises(GraphError) as caught:
        _parse(flavour, path)
    assert "strange.onnx" in str(caught.value)
    assert "Bogus" in str(caught.value)


def test_a_profile_that_the_network_cannot_take_is_an_error_with_tensorrts_reason(rtx: Flavour, tmp_path: Path) -> None:
    parsed = _parse(rtx, write_tiny(tmp_path / "a.onnx"))
    four = Profile.parse("min=1x4x224x224,opt=1x4x224x224,max=1x4x224x224")
    with pytest.raises(BuildError) as caught:
        rtx.build(parsed, Recipe("fp32", (four,)))
    assert "input" in str(caught.value)


def test_no_other_file_imports_tensorrt_and_no_other_room_speaks_to_it(root: Path) -> None:
    imports = re.compile(r"^\s*(import|from)\s+tensorrt|import_module\(.tensorrt|_import\(.tensorrt", re.MULTILINE)
    speaks = re.compile(r"(?<![\w-])trt\.[A-Z_]")
    sources = {path: path.read_text(encoding="utf-8") for path in (root / "src" / "face3d_trt").rglob("*.py")}
    assert [path.name for path, text in sources.items() if imports.search(text)] == ["flavour.py"]
    assert {path.parent.name for path, text in sources.items() if speaks.search(text)} == {"engine"}
    versions = [path.name for path, text in sources.items() if re.search(r"(?<![\w])trt\.__version__", text)]
    assert versions == ["flavour.py"]
