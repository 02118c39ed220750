"""Timing an engine's layers, on doubles of TensorRT and of a GPU; tests/gpu has the real ones."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.test_layers import HALF_8, conv, inspection, layer
from tests.tiny import Recorder

from face3d_trt.engine import layer_times as module
from face3d_trt.engine.layer_times import layers_of, random_pictures, time_layers
from face3d_trt.engine.values import Built, Recipe
from face3d_trt.errors import MissingError
from face3d_trt.graph.counts import Tally
from face3d_trt.records import ProfileRecord, TensorRecord

if TYPE_CHECKING:
    import numpy as np

SMALL, LARGE = (2, 3, 64, 64), (4, 3, 64, 64)
PROFILES = tuple(ProfileRecord(min=(1, 3, 64, 64), opt=opt, max=(8, 3, 64, 64)) for opt in (SMALL, LARGE))
COEFFS = 257


@dataclass
class Memory:
    address: int
    nbytes: int
    live: dict[int, Memory]
    content: np.ndarray | None = None

    def free(self) -> None:
        del self.live[self.address]


@dataclass
class Stream:
    handle: int = 7
    synchronized: int = 0

    def synchronize(self) -> None:
        self.synchronized += 1

    def free(self) -> None:
        self.handle = 0


@dataclass
class Gpu:
    """Memory by address; nothing computes."""

    live: dict[int, Memory] = field(default_factory=dict)
    room: int = 1 << 30

    def alloc(self, nbytes: int) -> Memory:
        if nbytes > self.room:
            raise MissingError("GPU 0 has too little memory", run="nvidia-smi")
        address = 256 * (1 + len(self.live))
        self.live[address] = Memory(address, nbytes, self.live)
        return self.live[address]

    def copy_in(self, address: int, array: np.ndarray, stream: Stream) -> None:
        assert array.nbytes <= self.live[address].nbytes
        self.live[address].content = array.copy()

    def stream(self) -> Stream:
        return Stream()


@dataclass
class Context:
    """An execution context that checks what TensorRT would crash on, and takes the times it is given."""

    gpu: Gpu
    profile: int
    speeds: Iterator[float]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        self.shapes[name] = shape

    def shape(self, name: str) -> tuple[int, ...]:
        return (self.shapes["input"][0], COEFFS)

    def set_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def enqueue(self, stream: int) -> None:
        assert stream
        pictures = self.gpu.live[self.addresses["input"]].content
        assert pictures is not None
        assert pictures.shape == self.shapes["input"] == PROFILES[self.profile].opt
        assert pictures.std() > 0.2
        assert self.gpu.live[self.addresses["coeffs"]].nbytes == self.shapes["input"][0] * COEFFS * 4

    def time_layers(self, run: Callable[[], None]) -> dict[str, float]:
        run()
        time = next(self.speeds)
        return {"conv1 [profile 1]": time, "pool [profile 1]": time / 4}


@dataclass
class Loaded:
    gpu: Gpu
    speeds: tuple[float, ...] = (1.0, 8.0, 2.0)
    closed: bool = False
    profiles: tuple[ProfileRecord, ...] = PROFILES
    inputs: tuple[TensorRecord, ...] = (TensorRecord(name="input", dtype="float32", shape=(-1, 3, -1, -1)),)
    outputs: tuple[TensorRecord, ...] = (TensorRecord(name="coeffs", dtype="float32", shape=(-1, COEFFS)),)
    text: str = inspection(
        conv("conv1", "Half", [HALF_8], [HALF_8]),
        conv("conv1 [profile 1]", "Int8", [HALF_8], [HALF_8]),
        layer("pool [profile 1]", "CaskPooling", [HALF_8], [HALF_8]),
    )

    def context(self, profile: int, *, stream: int) -> Context:
        return Context(self.gpu, profile, itertools.cycle(self.speeds))

    def layer_information(self, context: Context | None = None) -> str:
        return self.text

    def close(self) -> None:
        self.closed = True


class Flavour:
    """Loads what it is given."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def load(self, plan: bytes, where: str, *, host_code: bool) -> Loaded:
        return self.loaded


def _on(monkeypatch: pytest.MonkeyPatch, gpu: Gpu | MissingError) -> None:
    @contextlib.contextmanager
    def device() -> Iterator[Gpu]:
        if isinstance(gpu, MissingError):
            raise gpu
        yield gpu

    monkeypatch.setattr(module, "_device", device)


def test_each_layer_gets_its_median_under_the_largest_profile() -> None:
    gpu = Gpu()
    loaded: Any = Loaded(gpu)
    found = time_layers(loaded, gpu, runs=3)  # type: ignore[arg-type]
    assert found.timed_at == LARGE
    assert [(each.name, each.precision, each.time_ms) for each in found.layers] == [
        ("conv1", "int8", 2.0),
        ("pool", "fp16", 0.5),
    ]
    assert loaded.closed
    assert gpu.live == {}


def built(text: str | None) -> Built:
    return Built(b"plan", None, Tally(), inspection=text)


LISTED = inspection(conv("conv1", "Half", [HALF_8], [HALF_8]))
RECIPE = Recipe("fp16", ())


def test_nothing_stays_on_the_gpu_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(room=math.prod(LARGE))  # a quarter of what the input takes
    loaded, report = Loaded(gpu), Recorder()
    _on(monkeypatch, gpu)
    found = layers_of(Flavour(loaded), built(LISTED), RECIPE, report)  # type: ignore[arg-type]
    assert gpu.live == {}
    assert loaded.closed
    assert (len(found.layers), found.timed_at) == (1, None)
    assert report.warnings == [
        "the engine's layers are listed without times: GPU 0 has too little memory; run: nvidia-smi"
    ]


def test_without_pycuda_layers_are_listed_and_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _on(monkeypatch, MissingError("pycuda cannot be imported", run="pip install pycuda"))
    report = Recorder()
    found = layers_of(Flavour(Loaded(Gpu())), built(LISTED), RECIPE, report)  # type: ignore[arg-type]
    assert [(each.precision, each.time_ms) for each in found.layers] == [("fp16", None)]
    assert len(report.warnings) == 1
    assert "without times: pycuda cannot be imported; run: pip install pycuda" in report.warnings[0]


@pytest.mark.parametrize("pycuda", [True, False])
def test_an_inspection_that_cannot_be_read_does_not_cost_the_build(
    monkeypatch: pytest.MonkeyPatch, pycuda: bool
) -> None:
    gpu, report = Gpu(), Recorder()
    _on(monkeypatch, gpu if pycuda else MissingError("pycuda cannot be imported"))
    text = '{"Layers": [{"Name": "a"b"}]}'
    found = layers_of(Flavour(Loaded(gpu, text=text)), built(text), RECIPE, report)  # type: ignore[arg-type]
    assert (found.layers, found.timed_at) == ((), None)
    assert "the manifest lists no layers" in report.warnings[-1]


def test_a_plan_built_without_its_gpu_lists_nothing_and_says_nothing() -> None:
    report = Recorder()
    assert layers_of(Flavour(Loaded(Gpu())), built(None), RECIPE, report).layers == ()  # type: ignore[arg-type]
    assert report.warnings == []


@pytest.mark.parametrize(("dtype", "high"), [("float32", 1.0), ("uint8", 255)])
def test_pictures_are_noise_in_the_networks_range(dtype: str, high: float) -> None:
    pictures = random_pictures((2, 3, 64, 64), dtype)
    assert pictures.dtype == dtype
    assert pictures.min() >= 0
    assert 0.99 * high < pictures.max() <= high
    assert abs(pictures.mean() / high - 0.5) < 0.02
