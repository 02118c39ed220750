"""The fast PyTorch path on a GPU: graphs and compiled code give what the plain module gives, and keep their hands off
results that the caller has.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from face3d_trt.errors import EngineError, InputError

# torch, cuDNN's search and the compiler warn of what they did not take.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

COMPILED = {"mode": "half", "compile": "reduce-overhead"}
CAPTURED = {"mode": "half", "graph": True}


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


@pytest.fixture(scope="module")
def make(torch, standin):
    """A FastModel with these options, on the GPU."""
    from face3d_trt.model.fast import FastModel
    from face3d_trt.model.fast_options import FastOptions
    from face3d_trt.model.load import load_model

    model = load_model(standin)
    yield lambda **options: FastModel(model, FastOptions(**options), device="cuda")
    torch.compiler.reset()


@pytest.fixture(scope="module")
def crops(torch):
    from face3d_trt.faces.samples import sample_crops

    return sample_crops()


@pytest.fixture(scope="module")
def truth(torch, standin, crops):
    """Of the float32 network on the CPU."""
    from face3d_trt.model.load import load_model

    with torch.inference_mode():
        network = load_model(standin, morphable=False).network
        return network(torch.from_numpy(crops).permute(0, 3, 1, 2).contiguous() / 255).numpy()


def error(truth, found):
    from face3d_trt.bench.error import relative_error

    return relative_error(truth, np.asarray(found))


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    ("mode", "limit"), [("fp32", 0.001), ("tf32", 0.01), ("amp", 0.01), ("half", 0.01), ("bf16", 0.08)]
)
def test_every_mode_keeps_its_limits(make, torch, crops, truth, mode, limit, graph):
    fast = make(mode=mode, graph=graph, outputs="mesh")
    before = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark)
    for images in (crops, torch.from_numpy(crops).cuda(), torch.from_numpy(crops).permute(0, 3, 1, 2).float() / 255):
        found = {name: np.asarray(torch.as_tensor(each).cpu()) for name, each in fast(images).items()}
        assert error(truth, found["coeffs"]) < limit
        exact = make(mode="fp32", outputs="mesh")._module.decode(torch.from_numpy(found["coeffs"]).cuda())[0]
        assert np.abs(found["vertex"] - exact.cpu().numpy()).max() < 1e-4  # 0.01 mm
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark) == before


@pytest.mark.parametrize("options", [CAPTURED, COMPILED], ids=["captured", "compiled"])
def test_a_graph_computes_and_does_not_remember(make, torch, crops, truth, options):
    """It gives the answers of other pictures than those that it was captured with."""
    fast = make(**options)
    fast.warm_up(4)
    images = torch.from_numpy(crops).cuda().permute(0, 3, 1, 2).float() / 255
    for start in (0, 4, 2, 0):
        found = fast(images[start : start + 4])["coeffs"].cpu()
        assert error(truth[start : start + 4], found) < 0.01


@pytest.mark.parametrize("options", [CAPTURED, COMPILED], ids=["captured", "compiled"])
def test_no_later_call_overwrites_results(make, torch, crops, options):
    fast = make(**options)
    images = torch.from_numpy(crops[:2]).cuda()
    fast.warm_up(2, input="uint8")
    first = fast(images)["coeffs"]
    kept = first.cpu()
    for each in (crops[2:4], crops[4:6]):
        fast(torch.from_numpy(each).cuda())
    assert torch.equal(first.cpu(), kept)


def test_without_copying_the_next_call_does(make, torch, crops):
    """Else the test before this one tells nothing."""
    fast = make(**CAPTURED)
    first = fast(torch.from_numpy(crops[:2]).cuda(), copy=False)["coeffs"]
    kept = first.cpu()
    fast(torch.from_numpy(crops[2:4]).cuda(), copy=False)
    assert not torch.equal(first.cpu(), kept)


def test_graphs_that_were_dropped_are_captured_again(make, torch, crops, truth):
    fast = make(mode="half", graph=True, shapes=2)
    for batch in (1, 2, 3, 1, 4, 2):
        found = fast(torch.from_numpy(crops[:batch]).cuda())["coeffs"]
        assert np.abs(found.cpu().numpy() - truth[:batch]).max() < 0.05
        assert len(fast._run) <= 2


@pytest.mark.parametrize("options", [{"mode": "half"}, CAPTURED, COMPILED], ids=["eager", "captured", "compiled"])
def test_a_stream_of_batches_in_flight_comes_out_in_order(make, crops, truth, options):
    fast = make(**options)
    order = [0, 3, 1, 2, 3, 0, 2, 1, 1, 0] * 5
    stream = fast.map(crops[2 * at : 2 * at + 2] for at in order)
    for at, found in zip(order, stream, strict=True):
        assert np.abs(found["coeffs"] - truth[2 * at : 2 * at + 2]).max() < 0.05
        between = fast(crops[:2])["coeffs"]  # while others are in flight
        assert np.abs(between - truth[:2]).max() < 0.05


def test_calls_on_two_streams_do_not_meet_in_a_graphs_memory(make, torch, crops, truth):
    fast = make(**CAPTURED)
    fast.warm_up(4, input="uint8")
    images = [torch.from_numpy(crops[at : at + 4]).cuda() for at in (0, 4)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found = []
    for turn in range(40):
        with torch.cuda.stream(streams[turn % 2]):
            found.append(fast(images[turn % 2])["coeffs"])
    torch.cuda.synchronize()
    for turn, each in enumerate(found):
        assert np.abs(each.cpu().numpy() - truth[4 * (turn % 2) :][:4]).max() < 0.05


def test_a_compiled_model_refuses_another_thread_and_one_shape_too_many(make, torch):
    fast = make(**COMPILED, shapes=1)
    fast.warm_up(1)
    with pytest.raises(InputError, match="shape number 2"):
        fast(torch.rand(2, 3, 224, 224))
    caught = []

    def call():
        try:
            fast(torch.rand(1, 3, 224, 224))
        except EngineError as problem:
            caught.append(problem)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_the_tenth_shape_is_compiled_too(make, torch, monkeypatch):
    """torch's own limit is eight, after which it runs eagerly and says nothing."""
    from torch._dynamo import config
    from torch._dynamo.utils import counters

    monkeypatch.setattr(config, "recompile_limit", 2)
    fast = make(mode="half", compile="default")
    counters.clear()
    for batch in range(1, 5):
        fast(torch.rand(batch, 3, 64, 64))
    assert counters["stats"]["unique_graphs"] == 4
