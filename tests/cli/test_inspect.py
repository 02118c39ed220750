"""`face3d-trt inspect` as a user meets it: on any machine, without TensorRT, onnx and torch."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from face3d_trt.cli import main
from face3d_trt.engine import flavour as flavour_module
from face3d_trt.engine import inspect as module
from face3d_trt.optional import install_command
from face3d_trt.records import Calibration, Gpu, LayerRecord, Manifest, ModelInfo, ProfileRecord, TensorRecord

HEAVY = ("torch", "onnx", "onnxruntime", "modelopt", "tensorrt", "tensorrt_rtx", "polygraphy", "pycuda", "cv2", "numpy")
H200 = Gpu(name="NVIDIA H200", compute_capability="9.0", driver="580.159")
L4 = Gpu(name="NVIDIA L4", compute_capability="8.9", driver="580.159")
PLAN = b"ftrt" + bytes(range(256)) * 64  # the first four bytes are those of TensorRT 8.6
MODEL = ModelInfo(
    source="damo/cv_resnet50_face-reconstruction",
    revision="v2.0.0-HRN",
    weights="checkpoint",
    checkpoint_sha256="0" * 64,
    width=64,
    vertices=0,
    outputs="coeffs",
    input="uint8",
    template=((0.0, 0.0, 0.0),) * 5,
    version="0.1",
)


def layers() -> tuple[LayerRecord, ...]:
    """Twenty: 17 int8 convolutions and one in fp16, a reformat, a pool; 10 ms in all."""
    convolutions = [
        LayerRecord(
            name=f"backbone.{index}/Conv + relu/Relu",
            kind="CaskConvolution",
            precision="int8",
            time_ms=round(0.4 + 0.01 * index, 2),
            convolution=True,
        )
        for index in range(17)
    ]
    head = LayerRecord(name="head/Conv", kind="CaskConvolution", precision="fp16", time_ms=1.0, convolution=True)
    copy = LayerRecord(name="copy of the input", kind="Reformat", precision="int8", time_ms=0.5)
    pool = LayerRecord(name="pool", kind="CaskPooling", precision="fp16", time_ms=0.34)
    return (copy, *convolutions, pool, head)


def manifest(**changes: Any) -> Manifest:
    facts: dict[str, Any] = {
        "flavour": "tensorrt",
        "flavour_version": "8.6.0",
        "gpu": H200,
        "targets": (),
        "profiles": (
            ProfileRecord(min=(1, 224, 224, 3), opt=(8, 224, 224, 3), max=(32, 224, 224, 3)),
            ProfileRecord(min=(1, 224, 224, 3), opt=(256, 224, 224, 3), max=(256, 224, 224, 3)),
        ),
        "inputs": (TensorRecord(name="input", dtype="uint8", shape=(-1, -1, -1, 3)),),
        "outputs": (TensorRecord(name="coeffs", dtype="float32", shape=(-1, 257)),),
        "precision": "int8",
        "layers": {"int8": 53, "fp16": 7},
        "convolutions": {"int8": 53, "fp16": 7},
        "int8_macs": 0.998,
        "engine_layers": layers(),
        "timed_at": (256, 224, 224, 3),
        "optimization_level": 5,
        "workspace_bytes": None,
        "onnx": "face.onnx",
        "onnx_sha256": "1" * 64,
        "typed": "face.int8.onnx",
        "typed_sha256": "2" * 64,
        "calibration": Calibration(folder="faces/", method="output", images=512, skipped=3, fingerprint="3" * 64),
        "plan_sha256": hashlib.sha256(PLAN).hexdigest(),
        "plan_bytes": len(PLAN),
        "fingerprint": "4" * 64,
        "model": MODEL,
        "command": "face3d-trt build --onnx engines/face.onnx --int8 --calib faces/ -o engines/face.int8.plan",
        "created": "2026-11-30T12:00:00+00:00",
        "seconds": 72.4,
        "version": "0.1",
    }
    return Manifest(**{**facts, **changes})


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write(tmp_path, manifest())


def write(folder: Path, facts: Manifest) -> Path:
    path = folder / "face.int8.plan"
    path.write_bytes(PLAN)
    facts.write(path.with_name("face.int8.plan.json"))
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setattr(module, "visible_gpus", lambda: ())

    def inspect(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["face3d-trt", "inspect", *map(str, words)])
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return inspect


def test_the_page_says_what_the_plan_is(run: Any, plan: Path) -> None:
    code, out, err = run(plan)
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    for words in (
        "16.0 KiB, its bytes are those that build wrote",
        "TensorRT 8.6.0, face3d-trt 0.1, 2026-11-30T12:00:00+00:00, 72 s",
        "NVIDIA H200 (9.0), driver 580.159",
        "optimization level 5",
        "int8; of the network 53 of 60 convolutions in int8, 99.8% of the multiply-adds",
        "17 of 18 convolutions int8; time: 82 % int8, 13 % fp16, 5 % reformat",
        "input uint8 (any, any, any, 3)",
        "min=1x224x224x3 opt=256x224x224x3 max=256x224x224x3",
        "output on 512 pictures of faces/",
        "damo/cv_resnet50_face-reconstruction@v2.0.0-HRN",
        "built by: face3d-trt build --onnx engines/face.onnx --int8 --calib faces/ -o engines/face.int8.plan",
        "runs here: no, this machine has no NVIDIA GPU; the plan wants TensorRT 8.6.0 and NVIDIA H200",
        f"run: face3d-trt compare --plan {plan}",
    ):
        assert words in text
    unwrapped = ("built by", "runs here", "run:", "layers, the longest")
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines() if not any(mark in line for mark in unwrapped))


def test_a_typed_graph_that_was_replaced_is_said_and_the_plan_stays_sound(run: Any, tmp_path: Path) -> None:
    graph = tmp_path / "face.int8.onnx"
    graph.write_bytes(b"as built")
    plan = write(tmp_path, manifest(typed_sha256=hashlib.sha256(b"as built").hexdigest()))
    for content, state in ((b"as built", "as built"), (b"for another TensorRT", "replaced"), (None, "missing")):
        graph.unlink() if content is None else graph.write_bytes(content)
        code, out, _ = run(plan)
        assert code == 0
        assert (f"warning: {graph} is another graph than this plan was built from" in out) == (state == "replaced")
        assert json.loads(run(plan, "--json")[1])["typed"] == state


def test_the_longest_layers_come_first_and_every_layer_on_demand(run: Any, plan: Path) -> None:
    _, out, _ = run(plan)
    assert re.search(r"^12 of 20 layers, the longest; .*Times at 256x224x224x3, 10\.000 ms in all$", out, re.MULTILINE)
    rows = re.findall(r"^ *(\d\.\d{4}) +(\d+\.\d)% +(\w+)", out, re.MULTILINE)
    assert rows[0] == ("1.0000", "10.0", "fp16")
    assert len(rows) == 12
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)
    assert "convolutions not in int8:\n  fp16  head/Conv\n" in out
    _, out, _ = run(plan, "--layers")
    rows = re.findall(r"^ *(\d\.\d{4}) +(\d+\.\d)% +(\w+)", out, re.MULTILINE)
    assert [float(row[0]) for row in rows] == [layer.time_ms for layer in layers()]


def test_json_has_everything(run: Any, plan: Path) -> None:
    code, out, _ = run(plan, "--json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["sound"], answer["trouble"], answer["here"]["runs"]) == (True, None, False)
    assert Manifest.model_validate(answer["manifest"]) == manifest()
    assert answer["shares"]["convolutions"] == {"int8": 17, "fp16": 1}
    assert sum(answer["shares"]["time"].values()) == pytest.approx(1)
    assert answer["shares"]["layers"] == pytest.approx({"int8": 0.85, "fp16": 0.1, "reformat": 0.05})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(PLAN[:1000]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(PLAN[:-1] + b"?"),
        lambda path: path.write_bytes(PLAN + b"more"),
        lambda path: path.unlink(),
    ],
    ids=["truncated", "empty", "changed", "longer", "gone"],
)
def test_a_file_that_is_not_the_one_that_was_built_ends_with_2(run: Any, plan: Path, spoil: Any) -> None:
    spoil(plan)
    code, out, err = run(plan)
    assert code == 2
    words = "NOT the file that build wrote" if plan.exists() else "the file is not there"
    assert words in " ".join(out.split())
    assert "runs here" not in out
    assert "face.int8.plan" in err
    assert "  run: " in err
    code, out, _ = run(plan, "--json")
    assert code == 2
    answer = json.loads(out)
    assert not answer["sound"]
    assert answer["trouble"]["problem"] in err
    assert answer["manifest"]["flavour_version"] == "8.6.0"


def test_a_truncated_plan_is_told_with_its_sizes(run: Any, plan: Path) -> None:
    plan.write_bytes(PLAN[:1000])
    _, _, err = run(plan)
    assert "1000" in err.replace(",", "")
    assert str(len(PLAN)) in err.replace(",", "")


def test_a_plan_without_a_manifest_says_what_is_missing(run: Any, plan: Path) -> None:
    plan.with_name("face.int8.plan.json").unlink()
    code, out, err = run(plan)
    assert (code, out) == (2, "")
    assert "face.int8.plan.json" in err
    assert "face3d-trt build" in err
    code, out, _ = run(plan, "--json")
    assert (code, json.loads(out)["manifest"], json.loads(out)["here"]) == (2, None, None)


def test_where_no_gpu_could_load_the_engine_its_layers_are_not_listed(run: Any, tmp_path: Path) -> None:
    facts = manifest(
        flavour="tensorrt_rtx",
        flavour_version="1.7.1",
        gpu=None,
        targets=("8.6", "8.9"),
        engine_layers=(),
        timed_at=None,
    )
    code, out, _ = run(write(tmp_path, facts))
    assert code == 0
    assert "layers: not listed" in out
    assert "the plan wants TensorRT-RTX 1.7.1 and compute capability 8.6, 8.9" in out


def test_layers_without_times_stand_in_the_engines_order(run: Any, tmp_path: Path) -> None:
    untimed = tuple(layer.model_copy(update={"time_ms": None}) for layer in layers())
    _, out, _ = run(write(tmp_path, manifest(engine_layers=untimed, timed_at=None)))
    assert "12 of 20 layers, the first; --layers shows all\n" in out
    assert out.index("copy of the input") < out.index("backbone.0/Conv")
    assert "ms" not in out.split("shows all")[1].split("convolutions not")[0].split()


@pytest.fixture
def gpu_machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """This machine with GPUs and a TensorRT that it does not have: only what `can_run` looks at."""

    def have(*gpus: Gpu, version: str | None) -> None:
        monkeypatch.setattr(module, "visible_gpus", lambda: gpus)
        monkeypatch.setattr(flavour_module, "visible_gpus", lambda: gpus)
        flags = SimpleNamespace(EXPLICIT_BATCH=0)
        trt = SimpleNamespace(__version__=version, NetworkDefinitionCreationFlag=flags) if version else None
        monkeypatch.setitem(sys.modules, "tensorrt", trt)
        monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: object())

    return have


@pytest.mark.parametrize(
    ("gpu", "version", "why", "cure"),
    [
        (H200, None, "no TensorRT that can be imported", install_command("gpu")),
        (H200, "10.1.0", "this machine has TensorRT 10.1.0", "face3d-trt build --onnx engines/face.onnx --int8"),
        (L4, "8.6.0", "this machine has NVIDIA L4 (8.9)", "face3d-trt build --onnx engines/face.onnx --int8"),
    ],
)
def test_what_hinders_this_machine_is_said_with_the_cure(
    run: Any, plan: Path, gpu_machine: Any, gpu: Gpu, version: str | None, why: str, cure: str
) -> None:
    gpu_machine(gpu, version=version)
    facts = module.inspect_plan(plan)
    assert facts.trouble is None
    assert facts.here is not None
    assert not facts.here.runs
    assert why in facts.here.why
    assert "8.6.0" in facts.here.why
    assert cure in str(facts.here.run)


@pytest.mark.parametrize(
    ("gpu", "why"), [(L4, "fits NVIDIA L4 (8.9), but runs in that one's own"), (H200, "8.6, 8.9, and this is")]
)
def test_a_plan_of_rtx_is_not_for_this_packages_engines(tmp_path: Path, gpu_machine: Any, gpu: Gpu, why: str) -> None:
    gpu_machine(gpu, version="8.6.0")
    facts = manifest(flavour="tensorrt_rtx", flavour_version="1.7.1", gpu=None, targets=("8.6", "8.9"))
    here = module.inspect_plan(write(tmp_path, facts)).here
    assert here is not None
    assert not here.runs
    assert why in here.why
    assert install_command("gpu") in str(here.run)


def test_the_machine_that_built_it_runs_it(plan: Path, gpu_machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_machine(H200, version="8.6.0")
    assert module.inspect_plan(plan).here == module.Here(True, "with TensorRT 8.6.0 on NVIDIA H200 (9.0)")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    here = module.inspect_plan(plan).here
    assert here is not None
    assert not here.runs
    assert "pycuda is missing" in here.why


def test_the_second_gpu_will_do(plan: Path, gpu_machine: Any) -> None:
    gpu_machine(L4, H200, version="8.6.0")
    here = module.inspect_plan(plan).here
    assert here == module.Here(True, "with TensorRT 8.6.0 on NVIDIA H200 (9.0), device 1")


def test_tensorrt_rtx_in_its_place_is_cured_by_tensorrt(
    plan: Path, gpu_machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rtx = pytest.importorskip("tensorrt_rtx", reason="the extra rtx is not installed")
    gpu_machine(L4, version=None)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", rtx)
    here = module.inspect_plan(plan).here
    assert here is not None
    assert "this machine has TensorRT-RTX" in here.why
    assert here.run == install_command("gpu")


def test_it_answers_without_loading_a_framework(plan: Path) -> None:
    code = (
        "import sys\nfrom face3d_trt.cli import app\n"
        f"app(['inspect', {str(plan)!r}], standalone_mode=False)\n"
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "", "PYTHONPATH": str(Path(module.__file__).parents[2])}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert result.stderr == "loaded:\n"
    assert result.returncode == 0
