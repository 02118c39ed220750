"""What an engine's inspection says, in the fields that NVIDIA documents for each version; the values are our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from face3d_trt.engine.layers import MOVES, UNLISTED, layer_records, with_times
from face3d_trt.engine.network import plan_operations
from face3d_trt.engine.shares import shares
from face3d_trt.records import LayerRecord

# From the inspection of a full-sized network (uint8 input, int8, 8.6.0 on an H200); the seventh layer from another one.
REAL = (Path(__file__).parent / "inspector-8.6.0.json").read_text(encoding="utf-8")
INT8_32 = "Thirty-two wide channel vectorized row major Int8 format"
HALF_8 = "Channel major FP16 format where channel % 8 == 0"
FLOAT = "Row major linear FP32"
UNKNOWN = "N/A due to dynamic shapes"


def tensor(text: str, name: str = "a") -> dict[str, Any]:
    """As TensorRT 8.6 and 10 write one."""
    return {"Name": name, "Location": "Device", "Dimensions": [8, 64, 56, 56], "Format/Datatype": text}


def layer(name: str, kind: str, inputs: list[str], outputs: list[str], **more: Any) -> dict[str, Any]:
    sides = {"Inputs": [tensor(text) for text in inputs], "Outputs": [tensor(text) for text in outputs]}
    return {"Name": name, "LayerType": kind, **sides, **more}


def inspection(*layers: dict[str, Any] | str) -> str:
    return json.dumps({"Layers": list(layers), "Bindings": ["input", "coeffs"]})


def read(*layers: dict[str, Any] | str, profile: int = 0) -> list[tuple[str, str, str]]:
    return [(each.name, each.kind, each.precision) for each in layer_records(inspection(*layers), profile)]


def conv(name: str, weights: str, inputs: list[str], outputs: list[str]) -> dict[str, Any]:
    return layer(
        name, "CaskConvolution", inputs, outputs, ParameterType="Convolution", Weights={"Type": weights, "Count": 9408}
    )


def test_layers_of_a_real_engine() -> None:
    found = [(each.name.split("/")[0][:34], each.kind, each.precision) for each in layer_records(REAL)]
    assert found == [
        ("{ForeignNode[front", MOVES, "fp16"),  # uint8 to fp16
        ("front", MOVES, "fp16"),  # its transposition
        ("PWN(front.255 + (Unnamed Layer* 3)", "PointWiseV2", "fp16"),
        ("backbone.conv1.weight + backbone.c", "CaskConvActPool", "int8"),
        ("backbone.layer1.0.conv1.weight + b", "CaskConvolution", "int8"),
        ("backbone.layer4.1.relu", MOVES, "fp16"),  # a DequantizeLinear
        ("PWN(backbone.layer1.0", "PointWiseV2", "int8"),  # a residual add
        ("backbone.layer4.2.conv3.weight + b", "CaskConvolution", "int8"),  # hands on fp16
        ("Reformatting CopyNode for Input Te", MOVES, "fp16"),
        ("backbone.avgpool", "CaskPooling", "fp16"),
        ("final_layers.0", "CaskGemmConvolution", "fp16"),  # seven heads at once
        ("Reformatting CopyNode for Input Te", MOVES, "fp32"),
        ("Reshape", MOVES, "fp32"),
    ]
    assert shares(layer_records(REAL)).convolutions == {"int8": 3, "fp16": 1}


def test_a_convolution_that_pools_has_its_weights_counted() -> None:
    """Its weights stand in a field of another name."""
    assert [(each.precision, each.convolution) for each in plan_operations(REAL)] == [("int8", True)] * 3 + [
        ("fp16", True)
    ]


def test_a_convolution_computes_in_the_type_of_its_weights_whatever_it_hands_on() -> None:
    found = read(
        conv("conv1 + relu", "Int8", [INT8_32], [INT8_32]),
        conv("last", "Int8", [INT8_32], [HALF_8]),
        conv("head", "Half", [HALF_8], [FLOAT]),
        conv("dynamic", "Int8", [UNKNOWN], [UNKNOWN]),
    )
    assert [precision for _, _, precision in found] == ["int8", "int8", "fp16", "int8"]


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        (INT8_32, "int8"),
        ("Channel major INT8 format where channel % 16 == 0", "int8"),
        (HALF_8, "fp16"),
        ("Half", "fp16"),
        ("Half(50176,1:8,896,128)", "fp16"),
        (FLOAT, "fp32"),
        ("Float", "fp32"),
        ("Row major linear BFloat16 format", "other"),
        ("Row major linear UInt8 format", "other"),
        ("Int32", "other"),
        (UNKNOWN, "other"),
        ("Unknown format", "other"),
    ],
)
def test_without_weights_the_tensors_tell(text: str, precision: str) -> None:
    pool = layer("pool", "CaskPooling", [text], [text], ParameterType="Pooling")
    assert read(pool) == [("pool", "CaskPooling", precision)]


def test_tensorrt_11_has_the_type_in_a_field_of_its_own() -> None:
    """The migration guide: `Format/Datatype` is split."""
    sides = [{"Name": "a", "Format": "Row major linear", "Datatype": "Half"}]
    entry = {"Name": "pool", "LayerType": "CaskPooling", "Inputs": sides, "Outputs": sides}
    assert read(entry) == [("pool", "CaskPooling", "fp16")]


def test_bytes_and_indices_say_nothing_about_the_arithmetic() -> None:
    scaled = layer("front", "PointWiseV2", ["Row major linear UInt8 format"], [HALF_8], ParameterType="PointWise")
    assert read(scaled) == [("front", "PointWiseV2", "fp16")]


def test_what_moves_or_converts_data_is_a_reformat_of_the_type_it_makes() -> None:
    found = read(
        layer("quantise", "Reformat", [FLOAT], [INT8_32], ParameterType="Reformat", Origin="QDQ"),
        layer("flatten", "NoOp", [HALF_8], [HALF_8]),
        layer("__myl_MoveCast_myl0_3", "kgen", ["Float"], ["Half"]),
        layer("__myl_AddReluCast_myl0_4", "kgen", ["Half"], ["Float"]),
        layer("unseen", "Reformat", [UNKNOWN], [UNKNOWN]),
    )
    assert [(kind, precision) for _, kind, precision in found] == [
        (MOVES, "int8"),
        (MOVES, "fp16"),
        (MOVES, "fp16"),
        ("kgen", "fp16"),
        (MOVES, "other"),
    ]


def test_a_reformat_named_after_a_convolution_is_none() -> None:
    name = "Reformatting CopyNode for Input Tensor 0 to backbone.conv1/Conv"
    records = layer_records(inspection(layer(name, "Reformat", [FLOAT], [HALF_8])))
    assert [record.convolution for record in records] == [False]


@pytest.mark.parametrize(
    ("kind", "more", "convolution"),
    [
        ("CaskConvolution", {"ParameterType": "Convolution"}, True),
        ("CaskGemmConvolution", {}, True),
        ("CaskConvActPool", {}, True),
        ("correlation", {}, True),
        ("gemm", {"Metadata": "[ONNX Layer: backbone.layer1.0.conv1/Conv]\x1f[ONNX Layer: relu/Relu]"}, True),
        ("gemm", {"Metadata": "[ONNX Layer: decode/MatMul]"}, False),
        ("PointWiseV2", {"ParameterType": "PointWise"}, False),
    ],
)
def test_convolutions_go_by_several_names(kind: str, more: dict[str, str], convolution: bool) -> None:
    record = layer_records(inspection(layer("a", kind, ["Half"], ["Half"], **more)))[0]
    assert record.convolution is convolution


def test_control_characters_of_8_6_are_read_and_not_handed_on() -> None:
    """TensorRT 8.6 puts them, unescaped, between the names of fused nodes."""
    text = inspection(conv("conv1|relu", "Int8", [UNKNOWN], [UNKNOWN])).replace("|", "\x1f")
    with pytest.raises(ValueError, match="control character"):
        json.loads(text)
    assert layer_records(text)[0].name == "conv1 + relu"


def test_a_second_profile_has_its_own_layers() -> None:
    """An engine lists them all, those of later profiles marked; counted together, 53 convolutions would be 106."""
    layers = [conv("c", "Int8", [UNKNOWN], [UNKNOWN]), conv("c [profile 1]", "Half", [UNKNOWN], [UNKNOWN])]
    assert read(*layers) == [("c", "CaskConvolution", "int8")]
    assert read(*layers, profile=1) == [("c", "CaskConvolution", "fp16")]
    assert read(*layers[:1], profile=1) == [("c", "CaskConvolution", "int8")]
    assert [found.precision for found in plan_operations(inspection(*layers))] == ["int8"]


def test_without_detailed_verbosity_there_are_names_only() -> None:
    assert read("conv1", "pool") == [("conv1", "unknown", "other"), ("pool", "unknown", "other")]


@pytest.mark.parametrize("text", ["", "Layer(CaskConvolution): conv1", "[]", '{"Bindings": []}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|no list of layers"):
        layer_records(text)


def test_times_are_joined_by_name_and_none_is_lost() -> None:
    records = layer_records(
        inspection(
            conv("conv1|relu", "Int8", [UNKNOWN], [UNKNOWN]),
            layer("copy", "Reformat", [FLOAT], [HALF_8]),
            layer("copy", "Reformat", [HALF_8], [INT8_32]),
            layer("flatten", "NoOp", [HALF_8], [HALF_8]),
        ).replace("|", "\x1f")
    )
    timed = with_times(records, {"conv1\x1frelu [profile 1]": 0.5, "copy": 0.125, "{ForeignNode[a...b]}": 0.125})
    assert [(each.name, each.time_ms) for each in timed] == [
        ("conv1 + relu", 0.5),
        ("copy", 0.125),
        ("copy", 0.125),
        ("flatten", 0.0),
        ("{ForeignNode[a...b]}", 0.125),
    ]
    assert timed[-1].kind == UNLISTED
    assert sum(each.time_ms or 0 for each in timed) == 0.875


def record(precision: str, time: float | None, kind: str = "CaskConvolution") -> LayerRecord:
    return LayerRecord.model_validate(
        {
            "name": "a",
            "kind": kind,
            "precision": precision,
            "time_ms": time,
            "convolution": kind == "CaskConvolution",
        }
    )


def test_shares_add_up_and_reformats_are_their_own_share() -> None:
    found = shares(
        [
            record("int8", 6.0),
            record("int8", 1.0),
            record("fp16", 2.0),
            record("int8", 0.995, MOVES),
            record("other", 0.005, UNLISTED),
        ]
    )
    assert found.layers == {"int8": 0.4, "fp16": 0.2, "other": 0.2, "reformat": 0.2}
    assert found.time is not None
    assert sum(found.time.values()) == pytest.approx(1)
    assert found.convolutions == {"int8": 2, "fp16": 1}
    assert found.describe("int8") == "2 of 3 convolutions int8; time: 70 % int8, 20 % fp16, <1 % other, 10 % reformat"


def test_shares_without_times_are_of_layers() -> None:
    found = shares([record("fp16", None), record("fp32", None, "PointWiseV2")])
    assert found.time is None
    assert found.describe("fp16") == "1 of 1 convolutions fp16; layers: 50 % fp16, 50 % fp32"
    assert shares([]).describe("fp16") == "no layers listed"
