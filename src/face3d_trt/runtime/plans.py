"""A plan and its manifest, read and held against each other before TensorRT sees a byte: it trusts what it reads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.errors import PlanError
from face3d_trt.records import Manifest, manifest_path, plan_name

if TYPE_CHECKING:
    from face3d_trt.engine.flavour import Flavour
    from face3d_trt.records import Gpu

_PAIR = "NAME.plan with NAME.plan.json beside it, both as build wrote them"
_MAGIC = b"trt"  # from the second byte on: "ftrt" of TensorRT, "vtrt" of TensorRT-RTX
_IR_VERSION = 0x08  # what a serialized ONNX ModelProto begins with: field 1, a small integer


def open_plan(path: Path) -> tuple[Manifest, bytes]:
    """Read a plan and its manifest.

    Args:
        path: The plan; the manifest is `<path>.json`.

    Returns:
        The manifest, and the bytes that it vouches for.

    Raises:
        PlanError: One of them is missing or damaged, or they do not belong together. What lies there instead (an ONNX
            file, another plan of the folder, half a plan) is named.
    """
    data = _read(path)
    beside = manifest_path(path)
    if not os.path.exists(beside):
        raise _foreign(path, data) or PlanError(
            f"{path} has no manifest: {beside.name} is not beside it, "
            "and nothing else says which TensorRT and GPU it is for",
            allowed=_PAIR,
            run=f"{_build(path)}    # or copy {beside.name} from where the plan was built",
        )
    manifest = Manifest.read(beside)
    if hashlib.sha256(data).hexdigest() != manifest.plan_sha256:
        raise _mismatch(path, data, manifest)
    return manifest, data


def check_runs(manifest: Manifest, flavour: Flavour, gpu: Gpu | None = None, *, where: str) -> None:
    """Hold a plan against the TensorRT and the GPU that are to run it.

    Args:
        manifest: Of the plan.
        flavour: This machine's TensorRT.
        gpu: The GPU meant; None: the first.
        where: What the message calls the plan.

    Raises:
        PlanError: It was built for another TensorRT or another GPU.
    """
    reason = flavour.can_run(manifest, gpu)
    if reason is None:
        return
    if manifest.flavour != flavour.name:
        allowed = f"a plan of {'TensorRT' if flavour.name == 'tensorrt' else 'TensorRT-RTX'}"
    elif manifest.flavour_version != flavour.version and not manifest.version_compat:
        allowed = f"a plan of TensorRT {flavour.version}, or here TensorRT {manifest.flavour_version}"
    else:
        allowed = (
            f"a plan of this GPU's own{'' if manifest.hardware_compat else ', or one built with --hardware-compat'}"
        )
    raise PlanError(
        f"{where} does not run here: {reason}", allowed=allowed, run=f"{manifest.command}    # on this machine"
    )


def _read(path: Path) -> bytes:
    beside = manifest_path(path)
    if os.path.isdir(path) or not os.path.exists(path):  # of os.path, as a Path's own raise at names that are too long
        what = "is a folder" if os.path.isdir(path) else "is missing"
        run = Manifest.read(beside).command if os.path.isfile(beside) else _build(path)
        raise PlanError(f"{path} {what}", allowed=_PAIR, run=run)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}", allowed=_PAIR, run=f"ls -l {path}") from error
    if not data:
        raise PlanError(f"{path} is empty", allowed=_PAIR, run=_build(path))
    return data


def _mismatch(path: Path, data: bytes, manifest: Manifest) -> PlanError:
    """What these bytes are, which are not those of the manifest."""
    found, again = hashlib.sha256(data).hexdigest(), f"{manifest.command}    # builds it again"
    others = list(_neighbours(path))
    for name, other in others:
        if other.plan_sha256 == found:
            return PlanError(
                f"{path} holds the bytes of another plan: those of {name}",
                allowed=_PAIR,
                run=f"open {name}, or {again}",
            )
    for name, other in others:
        if other.plan_sha256 == manifest.plan_sha256:
            return PlanError(
                f"{manifest_path(path)} is the manifest of another plan: that of {name}",
                allowed=_PAIR,
                run=_build(path),
            )
    if foreign := _foreign(path, data, again):
        return foreign
    if manifest.plan_bytes is not None and len(data) < manifest.plan_bytes:
        return PlanError(
            f"{path} is cut off: {len(data):,} of {manifest.plan_bytes:,} bytes",
            allowed=_PAIR,
            run=f"copy it again, or {again}",
        )
    return PlanError(
        f"{path} is not the plan that its manifest describes: it was changed or replaced since it was built",
        allowed=_PAIR,
        run=again,
    )


def _foreign(path: Path, data: bytes, again: str | None = None) -> PlanError | None:
    """The error for bytes that are no plan at all; None for what may be one."""
    if len(data) > 2 and data[0] == _IR_VERSION and 0 < data[1] < 64:
        return PlanError(
            f"{path} is an ONNX file, not a plan",
            allowed=_PAIR,
            run=f"face3d-trt build --fp16 --onnx {shlex.quote(str(path))}    # or name it .onnx and open_engine it",
        )
    if data[1:4] != _MAGIC[: len(data[1:4])]:
        return PlanError(
            f"{path} is no TensorRT plan: it does not begin like one", allowed=_PAIR, run=again or _build(path)
        )
    return None


def _neighbours(path: Path) -> Iterator[tuple[str, Manifest]]:
    """Plans in the same folder, by what their manifests say."""
    own = manifest_path(path)
    for file in sorted(path.parent.glob("*.json")):
        if file != own and not file.name.endswith(".onnx.json"):
            with contextlib.suppress(PlanError):
                yield file.name.removesuffix(".json"), Manifest.read(file)


def _build(path: Path) -> str:
    return f"face3d-trt build --fp16 -o {shlex.quote(str(plan_name(path)))}"
