"""Claim 7: plans that cannot be run. Each is opened in a process of its own, so that a crash would be seen as one."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .children import Child, run_child

if TYPE_CHECKING:
    from .results import Settings

PLACES = 10  # where a plan is cut off
AT_ONCE = 4  # processes
RANDOM_BYTES = 100_000


@dataclass(frozen=True)
class Case:
    """One bad plan.

    Attributes:
        name: For the table.
        change: Is given the plan's path in a folder of its own, its manifest beside it, and spoils it.
        other: Whether the good plan of another precision lies beside it.
    """

    name: str
    change: Callable[[Path], None]
    other: bool = False


def run(settings: Settings) -> dict[str, Any]:
    """`{"good": {...}, "cases": {name: {"code", "error", "message", "stderr"}}}`; `error`: the exception's class."""
    plan, other = settings.plan("small_fp16"), settings.plan("small_int8")
    folder = settings.out / "bad-plans"
    shutil.rmtree(folder, ignore_errors=True)
    cases = all_cases(other, plan.stat().st_size, settings.graph("small.float32.fp16"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda case: (case.name, _try(case, plan, folder, settings.device)), cases)
        answers = dict(found)
    good = _told(run_child("bad_plans:attempt", plan=str(plan), device=settings.device))
    shutil.rmtree(folder)
    return {"good": good, "cases": answers}


def all_cases(other: Path, size: int, onnx: Path) -> list[Case]:
    """What is wrong with each.

    Args:
        other: A good plan of another precision.
        size: Of the plan that is spoiled, bytes.
        onnx: An ONNX file.
    """
    cuts = [size * place // PLACES for place in range(PLACES)]
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, RANDOM_BYTES, np.uint8).tobytes()
    return [
        Case("built with another TensorRT", _edit(flavour_version="10.3.0")),
        Case("built for another GPU", _other_gpu),
        Case("a manifest of a later version", _edit(schema_version=99)),
        Case("a manifest that is not JSON", lambda plan: _put(_manifest(plan), b"{")),
        Case("no manifest", lambda plan: _manifest(plan).unlink()),
        Case("no plan", lambda plan: plan.unlink()),
        Case("another plan under its name", lambda plan: _put(plan, other.read_bytes()), other=True),
        Case("an ONNX file renamed to .plan", lambda plan: _put(plan, onnx.read_bytes())),
        Case("an ONNX file renamed to .plan, no manifest", _renamed(onnx)),
        Case("random bytes", lambda plan: _put(plan, noise)),
        *(Case(f"cut off after {cut:,} bytes", _cut(cut)) for cut in cuts),
        Case("random bytes, forged manifest", _forged(lambda data: noise)),
        Case("an ONNX file, forged manifest", _forged(lambda data: onnx.read_bytes())),
        Case("TensorRT's version tag changed, forged manifest", _forged(_other_tag)),
        *(Case(f"cut off after {cut:,} bytes, forged manifest", _forged(_begin(cut))) for cut in cuts),
        Case("the last half zero, forged manifest", _forged(lambda data: data[: size // 2] + bytes(size - size // 2))),
    ]


def _try(case: Case, plan: Path, folder: Path, device: int) -> dict[str, Any]:
    home = folder / hashlib.sha256(case.name.encode()).hexdigest()[:12]
    home.mkdir(parents=True)
    spoiled = home / plan.name
    for path in (plan, _manifest(plan)):
        shutil.copy(path, home)
    if case.other:
        other = plan.with_name("small_int8.plan")
        for path in (other, _manifest(other)):
            shutil.copy(path, home)
    case.change(spoiled)
    child = run_child("bad_plans:attempt", timeout_s=120, plan=str(spoiled), device=device)
    shutil.rmtree(home)
    told = _told(child)
    return {**told, "message": told["message"] and told["message"].replace(f"{home}/", "")}


def _told(child: Child) -> dict[str, Any]:
    return {"error": None, "message": None, **(child.answer or {}), "code": child.code, "stderr": child.stderr[-2000:]}


def attempt(plan: str, device: int) -> dict[str, Any]:
    """In a process of its own: open the plan and run it once."""
    from face3d_trt import Engine
    from face3d_trt.errors import Face3DError

    from .pictures import random_input

    try:
        with Engine(plan, device=device) as engine:
            engine(random_input(1, "float32", 0))
    except Face3DError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception as error:  # not one of ours: the message does not help the user, and counts as a failure
        return {"error": f"{type(error).__module__}.{type(error).__name__}", "message": str(error)}
    return {"error": None, "message": None}


def _manifest(plan: Path) -> Path:
    return plan.with_name(plan.name + ".json")


def _edit(**changes: Any) -> Callable[[Path], None]:
    from face3d_trt.records import sealed

    def change(plan: Path) -> None:
        content = json.loads(_manifest(plan).read_text(encoding="utf-8"))
        _manifest(plan).write_bytes(sealed({**content, **changes}))

    return change


def _other_gpu(plan: Path) -> None:
    _edit(gpu={"name": "NVIDIA L4", "compute_capability": "8.9", "driver": "1"})(plan)


def _renamed(onnx: Path) -> Callable[[Path], None]:
    def change(plan: Path) -> None:
        plan.write_bytes(onnx.read_bytes())
        _manifest(plan).unlink()

    return change


def _cut(length: int) -> Callable[[Path], None]:
    return lambda plan: _put(plan, plan.read_bytes()[:length])


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _begin(length: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:length]


def _other_tag(data: bytes) -> bytes:
    """The plan's first bytes are a magic word, and within the next the versions of format and library."""
    return data[:4] + bytes(byte ^ 0xFF for byte in data[4:32]) + data[32:]


def _forged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """The manifest's hash and size then fit, so that TensorRT itself is asked."""

    def spoil(plan: Path) -> None:
        data = change(plan.read_bytes())
        plan.write_bytes(data)
        _edit(plan_sha256=hashlib.sha256(data).hexdigest(), plan_bytes=len(data))(plan)

    return spoil
