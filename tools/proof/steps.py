"""Which steps there are, in the order they run, and in which interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Side = Literal["engine", "torch"]


@dataclass(frozen=True)
class Step:
    """One part of the proof: a process of its own.

    Attributes:
        name: Also of its result.
        side: `engine` needs TensorRT and pycuda, `torch` needs torch.
        home: `module:function` in this package; it is given the settings and `arguments`, and returns figures.
        expected_s: What it takes on a large machine; it is not begun when less time is left.
        timeout_s: After which it is ended.
        needs: Steps whose results it works on.
        arguments: Of the function.
    """

    name: str
    side: Side
    home: str
    expected_s: float
    timeout_s: float
    needs: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)


def _build(name: str, graph: str, precision: str, profiles: str, expected_s: float) -> Step:
    arguments = {"name": name, "graph": graph, "precision": precision, "profiles": profiles}
    return Step(f"build_{name}", "engine", "build:run", expected_s, 600, ("graphs",), arguments)


SMALL = ("build_small_fp16", "build_small_int8")
UINT8 = ("build_uint8_fp16", "build_uint8_int8")
FLOAT32 = ("build_float32_fp16", "build_float32_int8")

STEPS: tuple[Step, ...] = (
    Step("machine_engine", "engine", "machine:engine_side", 5, 120),
    Step("machine_torch", "torch", "machine:torch_side", 5, 120),
    Step("graphs", "torch", "graphs:run", 240, 1800, ("machine_engine",)),
    _build("small_fp16", "small.float32.fp16", "fp16", "small", 30),
    _build("small_int8", "small.float32.int8", "int8", "small", 30),
    Step("reference", "torch", "parity:save", 20, 300, SMALL),
    Step("compare", "engine", "parity:compare", 20, 300, ("reference", *SMALL)),
    _build("uint8_int8", "full.uint8.int8", "int8", "serving", 75),
    _build("uint8_fp16", "full.uint8.fp16", "fp16", "serving", 120),
    _build("float32_int8", "full.float32.int8", "int8", "large", 40),
    _build("float32_fp16", "full.float32.fp16", "fp16", "large", 90),
    _build("low_fp16", "full.uint8.fp16", "fp16", "low", 60),
    Step("torch_best", "torch", "torch_best:run", 90, 600),
    Step("engine_only", "engine", "engine_only:run", 60, 400, (*UINT8, *FLOAT32)),
    Step("layers", "engine", "layers:run", 20, 200, (*UINT8, *FLOAT32)),
    Step("host_to_host", "engine", "host_to_host:run", 80, 400, UINT8),
    Step("memory", "engine", "memory:run", 10, 120, ("build_low_fp16",)),
    Step("torch_memory", "torch", "torch_memory:run", 30, 200),
    Step("soak", "engine", "soak:run", 120, 590, ("build_uint8_int8",)),
    Step("open_close", "engine", "open_close:run", 120, 590, ("build_small_fp16",)),
    Step("two_engines", "engine", "two_engines:run", 15, 120, UINT8),
    Step("devices", "engine", "two_engines:on_two_devices", 15, 120, ("build_uint8_fp16",)),
    Step("beside_torch", "torch", "beside_torch:run", 30, 200),
    Step("bad_plans", "engine", "bad_plans:run", 60, 400, ("build_small_fp16", "build_small_int8")),
)


def choose(asked: Sequence[str], steps: Sequence[Step] = STEPS) -> tuple[Step, ...]:
    """Steps by name, or by the beginning of their names; all where none is asked for.

    Raises:
        ValueError: Nothing has such a name.
    """
    for word in asked:
        if not any(step.name.startswith(word) for step in steps):
            raise ValueError(f"there is no step {word!r}: {', '.join(step.name for step in steps)}")
    exact = {step.name for step in steps}
    chosen = {step.name for word in asked for step in steps if _meant(word, step.name, exact)}
    return tuple(step for step in steps if not asked or step.name in chosen)


def _meant(word: str, name: str, exact: set[str]) -> bool:
    """`memory` is that step alone, `build` all that begin so."""
    return name == word if word in exact else name.startswith(word)
