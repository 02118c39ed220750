"""What the layers of a finished engine compute in, from the engine inspector's JSON (detailed verbosity).

| | TensorRT 8.6 | 10 | 11 |
|---|---|---|---|
| a tensor's type, `Format/Datatype` | "Thirty-two wide … Int8 format" | also plain "Half" | split into two fields |
| the same without shapes | "N/A due to dynamic shapes" | likewise | likewise |
| weights, with or without shapes | `Weights.Type` | not of gemm, kgen, correlation | likewise |
| JSON | control characters between names | escaped | escaped |

The layers of a second optimization profile carry "[profile 1]" in their names and are listed after those of the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from face3d_trt.records import LayerRecord

Computes = Literal["int8", "fp16", "fp32", "other"]

MOVES = "Reformat"  # the kind of every layer that only moves or converts data
UNLISTED = "not listed"  # the kind of what the profiler timed and the inspector did not name

_PRECISIONS: dict[str, Computes] = {
    "int8": "int8",
    "half": "fp16",
    "fp16": "fp16",
    "float16": "fp16",
    "float": "fp32",
    "fp32": "fp32",
    "float32": "fp32",
}
_WORD = re.compile(r"[A-Za-z]+\d*")
_PROFILE = re.compile(r"\s*\[profile\s+(\d+)\]")
_CONTROL = re.compile(r"\s*[\x00-\x1f]+\s*")
_CONVOLUTION = re.compile(r"conv|correlation", re.IGNORECASE)
_CONV_NODE = re.compile(r"\bConv(_\d+)?(\]|$)")  # in "[ONNX Layer: backbone.conv1/Conv]"
_MOVING = {"reformat", "noop", "shuffle", "cast", "copy", "move", "slice", "constant", "identity"}
_MOVING |= {"transpose", "concat", "concatenation", "signal", "wait"}  # the last two keep streams in step
_COMPILED = re.compile(r"__myl_([A-Za-z]+)")  # the compiler names a kernel after its steps: __myl_MoveCast_0
_REGION = re.compile(r"\{ForeignNode\[(?:[^\[\]]*/)?(\w+)\]\}")  # handed to that compiler by 8.6, a single node here
_STEP = re.compile(r"[A-Z][a-z]*")
_MOVING_STEPS = {"Move", "Cast", "Tran", "Resh", "Conc", "Slic"}


def read_layers(inspection: str, profile: int = 0) -> tuple[dict[str, Any], ...]:
    """The inspector's own entries of the layers that run under one optimization profile, in order.

    Names have neither control characters nor the mark of their profile.

    Args:
        inspection: JSON of `IEngineInspector.get_engine_information`.
        profile: Index of the optimization profile. Where no layer carries its mark, layers without a mark are taken.

    Raises:
        ValueError: It is not such JSON.
    """
    document = json.loads(inspection, strict=False)
    entries = document.get("Layers") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("no list of layers in it")
    by_profile: dict[int, list[dict[str, Any]]] = {}
    for entry in entries:  # a plain name, where the verbosity is not detailed
        layer = dict(entry) if isinstance(entry, dict) else {"Name": str(entry)}
        name, index = split_name(str(layer.get("Name", "")))
        by_profile.setdefault(index, []).append({**layer, "Name": name})
    return tuple(by_profile.get(profile) or by_profile.get(0) or [])


def split_name(name: str) -> tuple[str, int]:
    """A layer's name without control characters and without its profile's mark, and that profile's index."""
    mark = _PROFILE.search(name)
    return _CONTROL.sub(" + ", _PROFILE.sub("", name)).strip(" +"), int(mark[1]) if mark else 0


def layer_records(inspection: str, profile: int = 0) -> tuple[LayerRecord, ...]:
    """The layers under one profile, without times.

    Raises:
        ValueError: It is not the inspector's JSON.
    """
    return tuple(_record(layer) for layer in read_layers(inspection, profile))


def with_times(layers: Iterable[LayerRecord], times: Mapping[str, float]) -> tuple[LayerRecord, ...]:
    """Join the profiler's milliseconds by name.

    Where several layers have one name, the profiler's figure is their mean, and each gets that. A layer that it does
    not name ran nothing and gets 0. What it timed and the inspector did not list follows at the end: no time is lost.

    Args:
        layers: As listed.
        times: Layer's name, as TensorRT writes it, to milliseconds.
    """
    listed = list(layers)
    measured = {split_name(name)[0]: round(time, 6) for name, time in times.items()}
    timed = [layer.model_copy(update={"time_ms": measured.get(layer.name, 0.0)}) for layer in listed]
    names = {layer.name for layer in listed}
    rest = [
        LayerRecord(name=name, kind=UNLISTED, precision="other", time_ms=time)
        for name, time in measured.items()
        if name not in names
    ]
    return (*timed, *rest)


def weights_precision(layer: Mapping[str, Any]) -> Computes | None:
    """Of a layer's weights; None where the inspector names none."""
    for field in ("Weights", "ConvWeights"):  # the latter of a convolution that pools as well (CaskConvActPool)
        weights = layer.get(field)
        if isinstance(weights, dict):
            return _type_of(str(weights.get("Type", "")))
    return None


def is_convolution(layer: Mapping[str, Any]) -> bool:
    """Is this entry a convolution? A matrix product is one where the ONNX node behind it is called so."""
    kind = str(layer.get("LayerType", ""))
    if _moves(layer):
        return False
    if _CONVOLUTION.search(kind) or _CONVOLUTION.search(str(layer.get("ParameterType", ""))):
        return True
    nodes = re.split(r"[\x1e\x1f]|(?<=\])(?=\[)", str(layer.get("Metadata", "")))
    return "gemm" in kind.lower() and any(_CONV_NODE.search(node) for node in nodes)


def _record(layer: Mapping[str, Any]) -> LayerRecord:
    moves = _moves(layer)
    return LayerRecord(
        name=layer["Name"],
        kind=MOVES if moves else str(layer.get("LayerType", "unknown")),
        precision=_moved(layer) if moves else _computes(layer),
        convolution=is_convolution(layer),
    )


def _moves(layer: Mapping[str, Any]) -> bool:
    kind = str(layer.get("LayerType", "")).lower()
    if kind in _MOVING or str(layer.get("ParameterType", "")).lower() in _MOVING:
        return True
    name = str(layer.get("Name", ""))
    if kind == "myelin":
        region = _REGION.fullmatch(name)
        return region is not None and region[1].lower() in _MOVING
    steps = _COMPILED.match(name) if kind == "kgen" else None
    return steps is not None and set(_STEP.findall(steps[1])) <= _MOVING_STEPS


def _moved(layer: Mapping[str, Any]) -> Computes:
    return next((kind for kind in _types(layer, "Outputs") if kind), "other")


def _computes(layer: Mapping[str, Any]) -> Computes:
    """The weights' type; else the first input's that is a number of a network, then the first output's."""
    if (known := weights_precision(layer)) is not None:
        return known
    types = (*_types(layer, "Inputs"), *_types(layer, "Outputs"))
    return next((kind for kind in types if kind and kind != "other"), "other")


def _types(layer: Mapping[str, Any], side: str) -> Iterator[Computes | None]:
    for tensor in layer.get(side) or ():
        if isinstance(tensor, dict):
            fields = {name.lower(): str(value) for name, value in tensor.items()}
            texts = (fields.get(name, "") for name in ("format/datatype", "datatype", "format"))
            yield next((kind for kind in map(_type_of, texts) if kind), None)


def _type_of(text: str) -> Computes | None:
    """Read "Channel major FP16 format where channel % 8 == 0" as fp16, "Int32" as other, "N/A due to …" as None."""
    words = [word.lower() for word in _WORD.findall(text)]
    if not words or words[:2] == ["n", "a"] or "unknown" in words:
        return None
    return next((_PRECISIONS[word] for word in words if word in _PRECISIONS), "other")
