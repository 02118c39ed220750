"""The fast PyTorch path: each arithmetic within its limits, and the morphable model in float32 in all of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from face3d_trt.bench.error import relative_error
from face3d_trt.decode import Decoder, pose
from face3d_trt.errors import InputError, MissingError, UsageError
from face3d_trt.faces.samples import sample_crops
from face3d_trt.faces.tensor import to_input
from face3d_trt.model.fast import FastModel
from face3d_trt.model.fast_options import FastOptions
from face3d_trt.model.load import load_model
from face3d_trt.model.mixed import Mixed, float32_products
from face3d_trt.names import MM_PER_UNIT
from face3d_trt.parity.limits import load_limits

FP16 = load_limits().fp16.relative["default"]
# bfloat16 has 8 bits of precision where float16 has 11.
LIMITS = {"fp32": load_limits().fp32.relative["default"], "amp": FP16, "half": FP16, "bf16": 8 * FP16}


@pytest.fixture(scope="module")
def model(standin):
    return load_model(standin)


@pytest.fixture(scope="module")
def crops():
    return sample_crops()


@pytest.fixture(scope="module")
def truth(model, crops):
    """Coefficients of the float32 network, as `export` and `compare` have it."""
    with torch.inference_mode():
        return model.network(torch.from_numpy(to_input(crops, "float32"))).numpy()


def vertices(model, coeffs):
    """In numpy, float32, from the coefficients themselves."""
    return pose(Decoder.of(model.morphable).shape(coeffs), coeffs)


def apart_mm(one, other):
    return float(np.linalg.norm(np.asarray(one) - np.asarray(other), axis=-1).max() * MM_PER_UNIT)


@pytest.mark.parametrize("layout", ["float32", "uint8"])
@pytest.mark.parametrize("mode", LIMITS)
def test_every_mode_keeps_its_limits_and_its_mesh_is_that_of_its_coefficients(model, crops, truth, mode, layout):
    found = FastModel(model, FastOptions(mode, outputs="mesh"), device="cpu")(to_input(crops, layout))
    assert {values.dtype for values in found.values()} == {np.dtype(np.float32)}
    assert relative_error(truth, found["coeffs"]) < LIMITS[mode]
    if mode != "fp32":
        assert relative_error(truth, found["coeffs"]) > LIMITS["fp32"] / 10, "this is float32"
    assert apart_mm(found["vertex"], vertices(model, found["coeffs"])) < 0.001
    albedo = Decoder.of(model.morphable).albedo(found["coeffs"])
    assert np.abs(found["texture"] - albedo).max() < 1e-5


def test_a_callers_autocast_does_not_reach_the_morphable_model(model, crops):
    fast = FastModel(model, FastOptions("amp", outputs="mesh"), device="cpu")
    with torch.autocast("cpu", torch.bfloat16):
        found = fast(torch.from_numpy(to_input(crops, "float32")))
    assert found["vertex"].dtype == torch.float32
    assert apart_mm(found["vertex"], vertices(model, found["coeffs"].numpy())) < 0.001


# The unit in the last place of a coordinate of 100 mm: 0.1 mm in float16, 0.8 mm in bfloat16.
@pytest.mark.parametrize(("kind", "loses_mm"), [(torch.float16, 0.05), (torch.bfloat16, 0.4)])
@pytest.mark.parametrize("converted", [False, True])
def test_the_copied_recipe_loses_in_the_bases_what_the_right_one_keeps(model, truth, kind, loses_mm, converted):
    """Of the very same coefficients: `half()` on the whole model, and a region of autocast around all of it."""
    mixed = Mixed(model.network, model.morphable, "amp", channels_last=True)
    coeffs, right = torch.from_numpy(truth), torch.from_numpy(vertices(model, truth))
    decode = mixed.decode
    assert decode is not None
    assert apart_mm(decode(coeffs)[0], right) < 0.001
    with torch.autocast("cpu", kind):
        wrong = (decode.to(kind) if converted else decode)(coeffs)[0]
    assert apart_mm(wrong.float(), right) > loses_mm


def test_a_running_variance_beyond_float16_does_no_harm(model, crops, truth):
    network = copy.deepcopy(model.network)
    norm = network.backbone.layer1[0].bn1
    with torch.no_grad():
        factor = 1e6 / norm.running_var  # the same function: variance, mean and gain grow together
        network.backbone.layer1[0].conv1.weight *= factor.sqrt()[:, None, None, None]
        norm.running_mean *= factor.sqrt()
        norm.running_var *= factor
        norm.eps = 0.0
    assert not torch.isfinite(norm.running_var.half()).any()
    images = torch.from_numpy(to_input(crops, "float32"))
    found = Mixed(network, None, "half", channels_last=True)(images.half().to(memory_format=torch.channels_last))[0]
    assert relative_error(truth, found.numpy()) < FP16


def test_arrays_that_torch_would_warn_of_are_taken_as_they_are(model, crops, truth):
    fast = FastModel(model, FastOptions("fp32"), device="cpu")
    frozen = np.ascontiguousarray(crops[::-1])
    frozen.flags.writeable = False
    for images in (frozen, crops[::-1], to_input(crops, "float32")[::-1]):
        assert relative_error(truth[::-1], fast(images)["coeffs"]) < LIMITS["fp32"]


def test_a_stream_comes_in_order(model, crops, truth):
    fast = FastModel(model, FastOptions("fp32"), device="cpu")
    found = [each["coeffs"] for each in fast.map(iter([crops[:1], crops[1:5], crops[5:6]]))]
    assert [len(each) for each in found] == [1, 4, 1]
    assert relative_error(truth[:6], np.concatenate(found)) < LIMITS["fp32"]


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((1, 224, 224, 3), np.float32),
        np.zeros((1, 3, 224, 224), np.uint8),
        np.zeros((224, 224, 3), np.uint8),
        np.zeros((0, 224, 224, 3), np.uint8),
        np.zeros((1, 3, 32, 224), np.float32),
        np.zeros((1, 224, 224, 3), np.int64),
        torch.zeros(1, 3, 224, 224, dtype=torch.int32),
    ],
    ids=lambda images: f"{images.dtype} {tuple(images.shape)}",
)
def test_what_is_no_batch_of_pictures_is_refused(model, images):
    with pytest.raises(InputError, match="images is"):
        FastModel(model, FastOptions("fp32"), device="cpu")(images)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "fp16"}, "no mode 'fp16'"),
        ({"compile": "fast"}, "no mode 'fast'"),
        ({"outputs": "all"}, "no outputs 'all'"),
        ({"compile": "default", "graph": True}, "do not go together"),
        ({"shapes": 0}, "shapes is 0"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        FastOptions(**options)


@pytest.mark.parametrize(
    ("options", "device", "error"),
    [
        (FastOptions(graph=True), "cpu", UsageError),
        (FastOptions("tf32"), "cpu", UsageError),
        (FastOptions("fp32"), "meta", UsageError),
        (FastOptions("fp32"), "nowhere", UsageError),
        (FastOptions("fp32"), "cuda:99", MissingError),
    ],
)
def test_a_device_that_cannot_do_it_is_refused(model, options, device, error):
    with pytest.raises(error):
        FastModel(model, options, device=device)


def test_a_mesh_needs_the_morphable_model(standin):
    with pytest.raises(UsageError, match="mesh needs the morphable model"):
        FastModel(load_model(standin, morphable=False), FastOptions("fp32", outputs="mesh"), device="cpu")


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("precision", [None, "tf32"])
def test_the_processs_own_settings_come_back(tf32, precision):
    """Also where they were made through `fp32_precision`, after which torch refuses to read `allow_tf32`."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    try:
        if precision:
            matmul.fp32_precision = precision
        before = (cudnn.conv.fp32_precision, matmul.fp32_precision)
        with float32_products(tf32):
            assert (cudnn.conv.fp32_precision == "tf32") is tf32
            assert matmul.fp32_precision != "tf32"
        assert (cudnn.conv.fp32_precision, matmul.fp32_precision) == before
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = True, False  # what torch begins with
