"""The parts of the steps that need no GPU."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tools.proof.bad_plans import all_cases
from tools.proof.build import backbone, convolution_names, counted, profile_texts
from tools.proof.children import function, run_child
from tools.proof.layers import summary
from tools.proof.pictures import different_pictures, random_input
from tools.proof.soak import SIZES, Expected, Tally
from tools.proof.steps import STEPS
from tools.proof.two_engines import at_once

from face3d_trt.engine.profile import Profile
from face3d_trt.records import LayerRecord


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_has_a_function_that_loads_no_framework(step):
    assert callable(function(step.home))


def test_loading_the_steps_loads_no_framework():
    code = (
        "import sys; from tools.proof.steps import STEPS; from tools.proof.children import function\n"
        "[function(step.home) for step in STEPS]\n"
        "print({'torch', 'onnx', 'tensorrt', 'pycuda', 'PIL', 'pydantic'} & set(sys.modules))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_backbone_has_the_convolutions_of_the_network_itself():
    from torch import nn

    from face3d_trt.model.network import ReconNet

    network = ReconNet(16)
    convolutions = [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    assert set(convolution_names()) == {name for name in convolutions if name.startswith("backbone.")}
    assert len(convolution_names()) == 53


def test_fused_layers_count_for_every_convolution_in_them():
    def layer(name, precision, convolution=True):
        return LayerRecord(name=name, kind="CaskConvolution", precision=precision, convolution=convolution)

    found = backbone(
        [
            # as TensorRT 8.6 names them
            layer(
                "backbone.conv1.weight + backbone.conv1.weight_QuantizeLinear + backbone.conv1/Conv + r/Relu", "int8"
            ),
            layer("backbone.layer1.0.conv1/Conv || backbone.layer1.0.downsample.0/Conv", "fp16"),
            layer("Reformatting CopyNode for Input Tensor 0 to backbone.layer4.2.conv3/Conv", "fp32", False),
            layer("final_layers.0/Conv", "fp16"),
        ]
    )
    assert counted(found.values()) == {"int8": 1, "fp16": 2, "not found": 50}
    assert found["backbone.layer1.0.downsample.0"] == "fp16"
    assert found["backbone.layer1.0.conv2"] == "not found"


def test_a_real_inspection_names_the_convolutions():
    from face3d_trt.engine.layers import layer_records

    text = (Path(__file__).parents[1] / "engine" / "inspector-8.6.0.json").read_text(encoding="utf-8")
    found = backbone(layer_records(text))
    assert {name for name, kind in found.items() if kind == "int8"} == {
        "backbone.conv1",
        "backbone.layer1.0.conv1",
        "backbone.layer4.2.conv3",
    }


@pytest.mark.parametrize("kind", ["small", "low", "large", "serving"])
@pytest.mark.parametrize("layout", ["float32", "uint8"])
@pytest.mark.parametrize("largest", [64, 256, 1024])
def test_profiles_are_what_build_takes(kind, layout, largest):
    for text in profile_texts(kind, layout, largest):
        Profile.parse(text).check(layout)


def test_layers_are_summed_by_what_they_compute_in():
    records = [
        LayerRecord(name="a", kind="CaskConvolution", precision="int8", time_ms=0.5),
        LayerRecord(name="b", kind="CaskConvolution", precision="int8", time_ms=0.25),
        LayerRecord(name="c", kind="Reformat", precision="fp16", time_ms=1.0),
        LayerRecord(name="d", kind="Constant", precision="fp32", time_ms=None),
    ]
    found = summary(records)
    assert found["total_ms"] == 1.75
    assert found["by_precision"] == {"fp16": {"layers": 1, "ms": 1.0}, "int8": {"layers": 2, "ms": 0.75}}
    assert [each["name"] for each in found["top"]] == ["c", "a", "b"]


def test_inputs_have_the_layout_that_the_graph_takes():
    float32, uint8 = random_input(3, "float32", 0), random_input(3, "uint8", 0)
    assert (float32.shape, float32.dtype) == ((3, 3, 224, 224), np.float32)
    assert 0 <= float32.min() < 0.01 < 0.99 < float32.max() <= 1
    assert (uint8.shape, uint8.dtype) == ((3, 224, 224, 3), np.uint8)
    assert not np.array_equal(random_input(3, "uint8", 1), uint8)


class Linear:
    """An engine whose answer to a picture depends on that picture, and a little on the size of the batch."""

    def __init__(self, rounding: float = 0.0) -> None:
        self.rounding = rounding
        self.matrix = np.random.default_rng(0).normal(0, 1e-3, (27, 5)).astype(np.float32)

    def __call__(self, images):
        ninths = images.reshape(len(images), 3, 74, 3, 74, 3).mean((2, 4), dtype=np.float32)
        return {"coeffs": ninths.reshape(len(images), 27) @ self.matrix + np.float32(self.rounding * len(images))}


def pictures(count=24):
    return different_pictures(count)[:, :222, :222]


def test_swapped_and_stale_and_missing_rows_are_seen_and_rounding_is_not():
    engine = Linear(rounding=1e-6)
    crops = pictures()
    expected = Expected.of(lambda images: engine(images)["coeffs"], crops, SIZES)
    chosen = np.array([3, 8, 5, 8])
    rows = engine(crops[chosen])["coeffs"]
    assert expected.wrong(rows, chosen)[0] == 0
    assert expected.wrong(rows[[1, 0, 2, 3]], chosen)[0] == 2
    assert expected.wrong(np.zeros_like(rows), chosen)[0] == 4
    spoiled = rows.copy()
    spoiled[2, 4] = np.nan
    assert expected.wrong(spoiled, chosen)[0] == 1


def test_pictures_that_are_answered_alike_prove_nothing_and_are_refused():
    crops = pictures()
    crops[7] = crops[3]
    with pytest.raises(RuntimeError, match="apart"):
        Expected.of(lambda images: Linear(1e-6)(images)["coeffs"], crops, SIZES)


def test_threads_together_make_the_calls_asked_for_and_memory_is_sampled_after_the_first():
    engine, crops = Linear(), pictures()
    expected = Expected.of(lambda images: engine(images)["coeffs"], crops, SIZES)
    sizes = iter(range(10**6))
    tally = Tally(2400, lambda: ((next(sizes), 99), 5))
    threads = [threading.Thread(target=tally.work, args=(engine, crops, expected, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = tally.figures()
    assert (found["calls"], found["wrong_rows"], found["errors"]) == (2400, 0, [])
    assert found["rows"] > 2400
    assert 100 <= len(found["gpu_samples"]) <= 101
    assert found["gpu_samples"] == list(range(len(found["gpu_samples"])))  # this process's, not the whole GPU's
    assert (found["gpu_growth"], found["host_growth"]) == (len(found["gpu_samples"]) - 10, 0)


def test_engines_at_once_give_what_each_gives_alone(tmp_path):
    from tests.tiny import write_tiny

    from face3d_trt import OrtEngine

    first, second = (write_tiny(tmp_path / f"{seed}.onnx", layout="uint8", seed=seed) for seed in (1, 2))
    with OrtEngine(first, threads=1) as one, OrtEngine(second, threads=1) as two:
        assert at_once([one, two], calls=3) == {"calls": 24, "wrong": 0, "errors": []}
        swapped = [Swapped(one, two), two]
        assert at_once(swapped, calls=3)["wrong"] == 12


class Swapped:
    """An engine that, after the answers it gave alone, gives another engine's."""

    def __init__(self, engine, other):
        self.inputs, self.engine, self.other, self.left = engine.inputs, engine, other, 4

    def __call__(self, images):
        self.left -= 1
        return (self.engine if self.left >= 0 else self.other)(images)


def test_a_thread_that_fails_ends_the_work_and_is_told():
    def broken(images):
        raise ValueError("no")

    crops = pictures()
    tally = Tally(1000, lambda: ((None, 0), 0))
    tally.work(broken, crops, Expected(Linear()(crops)["coeffs"], 1.0), 0)
    tally.work(Linear(), crops, Expected(Linear()(crops)["coeffs"], 1.0), 0)
    assert tally.figures()["errors"] == ["ValueError: no"]
    assert tally.figures()["calls"] == 0


def test_every_bad_plan_is_bad_in_the_way_that_its_name_says(tmp_path):
    data = np.random.default_rng(1).integers(0, 256, 10_000, np.uint8).tobytes()
    record = {"schema_version": 1, "plan_sha256": hashlib.sha256(data).hexdigest(), "plan_bytes": len(data)}
    other, onnx = tmp_path / "other.plan", tmp_path / "a.onnx"
    other.write_bytes(data[::-1])
    onnx.write_bytes(b"onnx")
    names = set()
    for case in all_cases(other, len(data), onnx):
        names.add(case.name)
        plan = tmp_path / "p.plan"
        manifest = tmp_path / "p.plan.json"
        plan.write_bytes(data)
        manifest.write_text(json.dumps(record))
        case.change(plan)
        if "forged" in case.name:
            now, vouched = plan.read_bytes(), json.loads(manifest.read_text())
            assert now != data, case.name
            assert (vouched["plan_sha256"], vouched["plan_bytes"]) == (hashlib.sha256(now).hexdigest(), len(now))
        else:
            same_plan = plan.is_file() and plan.read_bytes() == data
            assert not (same_plan and manifest.is_file() and manifest.read_text() == json.dumps(record)), case.name
    assert len([name for name in names if name.startswith("cut off")]) == 20
    assert len(names) >= 34


def test_a_child_answers_over_its_own_output_and_a_crash_is_told_as_one():
    child = run_child("pictures:random_input", batch=1, layout="uint8", seed=0)
    assert child.answer is None  # an array is not JSON
    assert child.code == 1
    assert "not JSON serializable" in child.stderr
    fine = run_child("build:counted", kinds=["a", "a", "b"])
    assert (fine.code, fine.answer, fine.stderr) == (0, {"a": 2, "b": 1}, "")
    with pytest.raises(RuntimeError, match="ended with 1"):
        child.expect()
