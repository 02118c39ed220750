"""Every member of TensorRT that the package uses, held against the TensorRTs themselves."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from face3d_trt.engine import api

CLASSES_8_6 = json.loads((Path(__file__).parent / "tensorrt-8.6.0.json").read_text())  # what `dir` of each class gave
UNLISTED_8_6 = {"ILayer", "ITensor", "ParserError"}  # that list has not got these classes of 8.6
BUILDER = {"Builder", "EngineInspector", "IBuilderConfig", "ILayer", "INetworkDefinition", "ITensor", "OnnxParser"}
NOT_IN_LEAN = BUILDER | {"NetworkDefinitionCreationFlag", "ParserError"}  # it only runs plans


def _members(protocol: type[Any]) -> set[str]:
    names = set(protocol.__annotations__) | {name for name, value in vars(protocol).items() if _is_api(value)}
    return {name for name in names if not name.startswith("_")}


def _is_api(value: object) -> bool:
    return isinstance(value, property) or callable(value)


def _expected(name: str, member: str, flavour: str) -> bool:
    return all(flavour in api.ONLY_IN.get(each, {flavour}) for each in (name, f"{name}.{member}"))


def _names() -> list[tuple[str, str]]:
    return [(name, member) for name, protocol in api.CLASSES.items() for member in sorted(_members(protocol))]


def test_the_table_of_differences_names_declared_members_only() -> None:
    declared = {f"{name}.{member}" for name, member in _names()} | _members(api.Module)
    assert set(api.ONLY_IN) <= declared
    assert {name for name in _members(api.Module) if name in api.CLASSES} >= BUILDER & _members(api.Module)


def test_a_member_is_in_8_6_exactly_where_declared() -> None:
    wrong = [
        f"{name}.{member}"
        for name, member in _names()
        if name not in UNLISTED_8_6 and (member in CLASSES_8_6.get(name, ())) != _expected(name, member, api.OLD)
    ]
    assert wrong == []


@pytest.mark.parametrize("module", ["tensorrt_lean", "tensorrt_rtx"])
def test_a_member_is_in_11_and_rtx_exactly_where_declared(module: str) -> None:
    """`tensorrt_lean` 11 has the runtime's classes; no Runtime of it is made, which would want a GPU."""
    trt = pytest.importorskip(module)
    flavour = {"tensorrt_lean": api.TYPED, "tensorrt_rtx": api.RTX}[module]
    wrong = [
        f"{name}.{member}"
        for name, member in _names()
        if not (module == "tensorrt_lean" and name in NOT_IN_LEAN)
        and hasattr(getattr(trt, name, None), member) != _expected(name, member, flavour)
    ]
    assert wrong == []


def test_the_modules_names_are_there() -> None:
    rtx = pytest.importorskip("tensorrt_rtx")
    assert {name for name in _members(api.Module) if not hasattr(rtx, name)} == set()
    known = set(CLASSES_8_6) | UNLISTED_8_6 | {"IProfiler"}
    assert {name for name in _members(api.Module) if name not in known} == {
        name for name in api.ONLY_IN if "." not in name
    }


@pytest.mark.gpu
def test_the_tensorrt_of_this_machine_has_its_members() -> None:
    """8.6 itself rather than the list of it; or 10, or 11."""
    trt = importlib.import_module("tensorrt")
    flavour = api.OLD if trt.__version__.startswith("8.") else api.TYPED
    if trt.__version__.startswith("10."):
        flavour = "TensorRT 10"
    missing = [
        f"{name}.{member}"
        for name, member in _names()
        if _expected(name, member, flavour) and not hasattr(getattr(trt, name, None), member)
    ]
    assert missing == []


def test_asking_for_what_nobody_declared_is_a_mistake() -> None:
    rtx: Any = pytest.importorskip("tensorrt_rtx")
    assert api.has(rtx, "NetworkDefinitionCreationFlag.STRONGLY_TYPED")
    assert not api.has(rtx, "BuilderFlag.FP16")
    with pytest.raises(KeyError):
        api.has(rtx, "BuilderFlag.REFIT")
