from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from face3d_trt.errors import UsageError
from face3d_trt.parity.limits import limit_key, load_limits
from face3d_trt.parity.meaning import MEASURES

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = json.loads(resources.files("face3d_trt.parity").joinpath("limits.json").read_text(encoding="utf-8"))


def test_fp16_may_differ_by_one_per_cent_in_every_group() -> None:
    fp16 = load_limits().of("fp16")
    for group in ("identity", "expression", "texture", "angle", "lighting", "translation"):
        assert fp16.of("relative", limit_key("coeffs", group)) == 0.01
    assert fp16.of("relative", "vertex") == 0.01


def test_a_group_of_its_own_limit_leaves_the_others_alone(tmp_path: Path) -> None:
    content = json.loads(json.dumps(SHIPPED))
    content["int8"]["relative"]["coeffs.texture"] = 0.2
    path = tmp_path / "limits.json"
    path.write_text(json.dumps(content))
    int8 = load_limits(path).of("int8")
    assert int8.of("relative", "coeffs.texture") == 0.2
    assert int8.of("relative", "texture") == int8.of("relative", "coeffs.angle") == 0.1


def test_every_measure_is_limited_and_stricter_the_higher_the_precision() -> None:
    limits = load_limits()
    for name, measure in MEASURES.items():
        fp32, fp16, int8 = (limits.of(precision).meaning[name] for precision in ("fp32", "fp16", "int8"))
        for one, other in ((fp32, fp16), (fp16, int8)):
            for share in ("median", "p95", "worst"):
                strict, loose = getattr(one, share), getattr(other, share)
                assert strict <= loose if measure.better == "low" else strict >= loose, (name, share)
        ordered = (int8.median, int8.p95, int8.worst)
        assert list(ordered) == sorted(ordered, reverse=measure.better == "high")


def changed(*keys: str, value: object) -> str:
    content = json.loads(json.dumps(SHIPPED))
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    if value is None:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        (changed("schema_version", value=1), "schema_version"),
        (changed("fp16", value=None), "fp16"),
        (changed("fp16", "relative", "default", value=None), "default"),
        (changed("fp16", "relative", "coeffs.nose", value=0.1), "coeffs.nose"),
        (changed("fp16", "relative", "default", value=-1), "fp16.relative"),
        (changed("fp16", "cosine", "default", value=1.5), "fp16.cosine"),
        (changed("fp16", "tolerance", value={"default": 1}), "tolerance"),
        (changed("int8", "row", "default", value="ten"), "int8.row"),
        (changed("int8", "meaning", value=None), "int8.meaning"),
        (changed("int8", "meaning", "nose_mm", value={"worst": 1}), "nose_mm"),
        (changed("int8", "meaning", "rotation", value={"worst": -3}), "rotation is an error, which is never below 0"),
        (changed("fp16", "meaning", "rotation", value={"mean": 1}), "fp16.meaning.rotation.mean"),
        (changed("fp16", "meaning", "rotation", "worst", value="one"), "fp16.meaning.rotation.worst"),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_limits(path)
    assert named in str(caught.value)
    assert "mine.json" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json"):
        load_limits(tmp_path / "none.json")
