"""The backends of PyTorch give the model's answers, whatever they are timed in."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from face3d_trt.bench import torch_backends
from face3d_trt.bench.backend import Case, Source
from face3d_trt.bench.error import relative_error
from face3d_trt.bench.registry import BACKENDS
from face3d_trt.errors import UsageError
from face3d_trt.faces.samples import sample_crops
from face3d_trt.faces.tensor import to_input
from face3d_trt.model.fast_options import FastOptions
from face3d_trt.model.load import load_model

BATCH, SIDE = 2, 96


@pytest.fixture(scope="module")
def backend(standin):
    made = torch_backends.make("torch-fp32", Source(model=standin))
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize("mode", ["engine", "host"])
@pytest.mark.parametrize("layout", ["float32", "uint8"])
def test_both_modes_and_layouts_give_the_networks_coefficients(backend, standin, mode, layout):
    crops = np.ascontiguousarray(sample_crops()[:BATCH, :SIDE, :SIDE])
    with torch.inference_mode():
        network = load_model(standin, morphable=False).network
        truth = network(torch.from_numpy(to_input(crops, "float32"))).numpy()
    ready = backend.ready(Case(BATCH, SIDE, SIDE, mode=mode, input=layout))
    try:
        assert relative_error(truth, ready.coeffs(to_input(crops, layout))) < 0.001
        assert ready.window_ms(1) > 0
        assert ready.allocator_peak() is None
    finally:
        ready.close()


def test_the_registry_names_them_all_with_the_arithmetic_they_compute_in():
    named = {name: entry.arithmetic for name, entry in BACKENDS.items() if name.startswith("torch-")}
    assert named == {name: kind.arithmetic for name, kind in torch_backends.KINDS.items()}
    for name, kind in torch_backends.KINDS.items():
        options = FastOptions(**kind.options)
        assert BACKENDS[name].compiles is (options.compile is not None)


def test_labels_tell_them_apart():
    labels = [FastOptions(**kind.options).label for kind in torch_backends.KINDS.values()]
    assert len(set(labels)) == len(labels)


def test_a_graph_needs_a_gpu(standin):
    with pytest.raises(UsageError, match="torch-graph needs a GPU"):
        torch_backends.make("torch-graph", Source(model=standin))


def test_without_a_compiler_nothing_is_compiled(monkeypatch, tmp_path):
    compiled = FastOptions("fp32", compile="default")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert "C++ compiler" in (torch_backends.why_not_on_cpu(compiled) or "")
    (tmp_path / "clang++").write_bytes(b"")
    (tmp_path / "clang++").chmod(0o755)
    assert torch_backends.why_not_on_cpu(compiled) is None


def test_inputs_in_turn_are_different_pictures(backend):
    """A backend that was fed the same noise again and again would find it in its caches."""
    ready = backend.ready(Case(1, SIDE, SIDE, input="uint8"))
    seen = [next(ready._turns).numpy() for _ in range(3)]
    ready.close()
    assert not any(np.array_equal(seen[0], other) for other in seen[1:])
