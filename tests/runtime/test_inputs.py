"""What an engine takes, and the words for what it does not."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from face3d_trt.errors import GraphError, InputError
from face3d_trt.records import ProfileRecord, TensorRecord
from face3d_trt.runtime.inputs import HostImages, Spec

FLOAT = TensorRecord(name="input", dtype="float32", shape=(-1, 3, -1, -1))
UINT8 = TensorRecord(name="input", dtype="uint8", shape=(-1, -1, -1, 3))
OUTPUTS = (
    TensorRecord(name="coeffs", dtype="float32", shape=(-1, 257)),
    TensorRecord(name="vertex", dtype="float32", shape=(-1, 20, 3)),
)
P_FLOAT = ProfileRecord(min=(1, 3, 224, 224), opt=(2, 3, 224, 224), max=(4, 3, 224, 224))
P_UINT8 = ProfileRecord(min=(1, 224, 224, 3), opt=(2, 224, 224, 3), max=(4, 224, 224, 3))
TAKES_FLOAT = Spec((FLOAT,), OUTPUTS, (P_FLOAT,))
TAKES_UINT8 = Spec((UINT8,), OUTPUTS, (P_UINT8,))
NCHW = np.full((2, 3, 224, 224), 0.5, np.float32)
NHWC = np.full((2, 224, 224, 3), 128, np.uint8)


def refused(spec: Spec, images: object) -> InputError:
    with pytest.raises(InputError) as caught:
        spec.check(images)
    return caught.value


def test_the_right_array_is_taken_as_it_is():
    for spec, images in ((TAKES_FLOAT, NCHW), (TAKES_UINT8, NHWC)):
        for _ in range(2):  # a new shape, and one that was seen
            checked = spec.check(images)
            assert isinstance(checked, HostImages)
            assert checked.array is images
            assert checked.batch == 2
            assert [piece.rows for piece in checked.pieces] == [2]


def test_any_strides_and_read_only_arrays_are_taken_on_the_host():
    turned = np.zeros((2, 224, 224, 3), np.float32).transpose(0, 3, 1, 2)
    turned.flags.writeable = False
    assert TAKES_FLOAT.check(turned).array is turned
    assert TAKES_UINT8.check(NHWC[:, ::-1, ::-1]).batch == 2


def test_a_tensor_of_torch_on_the_host_is_read_where_it_lies():
    tensor = torch.full((2, 3, 224, 224), 0.5)
    checked = TAKES_FLOAT.check(tensor)
    assert checked.array.ctypes.data == tensor.data_ptr()
    error = refused(TAKES_FLOAT, tensor.requires_grad_())
    assert "detach" in error.run
    assert "bfloat16" in str(refused(TAKES_FLOAT, torch.zeros((2, 3, 224, 224), dtype=torch.bfloat16))).lower()


# (spec, array, what the message says, what it says to run), one row for each kind of mistake
MISTAKES = {
    "float64": (TAKES_FLOAT, NCHW.astype(float), "images are float64, and this engine takes float32", "astype"),
    "float16": (TAKES_FLOAT, NCHW.astype(np.float16), "images are float16", "images.astype(np.float32)"),
    "uint8 for float32": (TAKES_FLOAT, NHWC, "images are uint8", "transpose(0, 3, 1, 2).astype(np.float32) / 255"),
    "float32 for uint8": (TAKES_UINT8, NCHW, "images are float32", "np.rint(images.transpose(0, 2, 3, 1) * 255)"),
    "int64 for uint8": (TAKES_UINT8, NHWC.astype(int), "images are int64", "images.astype(np.uint8)"),
    "other byte order": (TAKES_FLOAT, NCHW.astype(">f4"), "images are >f4", "byte order"),
    "one picture": (TAKES_FLOAT, NCHW[0], "one picture without the batch axis", "engine(images[None])"),
    "one uint8 picture": (TAKES_UINT8, NHWC[0], "one picture without the batch axis", "engine(images[None])"),
    "five axes": (TAKES_FLOAT, NCHW[None], "5 axes, not 4", None),
    "channels last": (TAKES_FLOAT, NCHW.transpose(0, 2, 3, 1), "channels last", "transpose(0, 3, 1, 2)"),
    "channels first": (TAKES_UINT8, NHWC.transpose(0, 3, 1, 2), "channels first", "transpose(0, 2, 3, 1)"),
    "grey": (TAKES_UINT8, NHWC[..., :1], "1 channels (grey)", "np.repeat(images, 3, axis=3)"),
    "RGBA": (TAKES_FLOAT, np.zeros((1, 4, 224, 224), np.float32), "4 channels (RGBA)", "images[:, :3]"),
    "empty": (TAKES_FLOAT, NCHW[:0], "empty batch", "if len(images)"),
    "size": (TAKES_UINT8, np.zeros((1, 200, 224, 3), np.uint8), "height 200 and width 224", "200 x 224"),
    "0..255": (TAKES_FLOAT, NCHW * 255, "look like 0..255", "/ np.float32(255)"),
    "dark 0..255": (TAKES_FLOAT, NCHW * 20, "look like 0..255", "/ np.float32(255)"),
    "overshoot": (TAKES_FLOAT, NCHW * 2.1, "as resampling overshoots", "np.clip(images, 0, 1)"),
    "undershoot": (TAKES_FLOAT, NCHW - 0.6, "as resampling overshoots", "np.clip(images, 0, 1)"),
    "neither": (TAKES_FLOAT, NCHW * 6, "from 3 to 3", None),
    "standardized": (TAKES_FLOAT, NCHW * 2 - 2, "look standardized", "* std + mean"),
    "list": (TAKES_UINT8, [NHWC[0]], "images is list", "np.stack"),
    "None": (TAKES_UINT8, None, "images is NoneType", None),
    "bytes": (TAKES_UINT8, b"jpeg", "images is bytes", None),
    "number": (TAKES_FLOAT, np.float32(0.5), "a single number (float32)", None),
    "masked": (TAKES_FLOAT, np.ma.masked_greater(NCHW, 0.7), "a masked array", "images.filled(0)"),
    "negated": (
        TAKES_FLOAT,
        torch.full((2, 3, 224, 224), -0.5j, dtype=torch.complex64).conj().imag,
        "lazily negated",
        "images.resolve_neg()",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_its_own_words(mistake):
    spec, images, words, run = MISTAKES[mistake]
    error = refused(spec, images)
    assert words in error.problem
    assert error.allowed
    if run:
        assert run in error.run


def test_only_a_picture_is_said_to_become_an_array():
    image = pytest.importorskip("PIL.Image").new("RGB", (224, 224))
    assert refused(TAKES_UINT8, image).run == "np.asarray(picture)[None]"
    for what in (None, b"jpeg", 5, np.float32(1), {"images": NHWC}):
        assert refused(TAKES_UINT8, what).run is None


def test_rows_that_are_one_are_looked_at_once():
    shape = (1 << 16, 3, 224, 224)
    begun = time.perf_counter()
    assert TAKES_FLOAT.check(np.broadcast_to(NCHW[:1], shape)).batch == 1 << 16
    assert "row 0" in refused(TAKES_FLOAT, np.broadcast_to(NCHW[:1] * 255, shape)).problem
    assert "row 0" in refused(TAKES_FLOAT, np.broadcast_to(np.float32(np.nan), shape)).problem
    assert time.perf_counter() - begun < 2


def test_a_graph_that_is_no_plan_speaks_of_no_profiles():
    error = refused(Spec((UINT8,), OUTPUTS, ()), np.zeros((1, 32, 224, 3), np.uint8))
    assert "profile" not in str(error)
    assert "64 to 1024" in error.allowed


def test_no_two_mistakes_share_a_message():
    texts = [refused(spec, images).problem for spec, images, _, _ in MISTAKES.values()]
    assert len(set(texts)) >= len(texts) - 2  # one picture and a bare dtype read the same for both layouts


@pytest.mark.parametrize(
    "mistake", ["uint8 for float32", "float32 for uint8", "channels last", "0..255", "one picture"]
)
def test_what_the_message_says_to_run_mends_it(mistake):
    spec, images, _, _ = MISTAKES[mistake]
    text = refused(spec, images).run.partition("    #")[0]
    text = text.removeprefix("engine(")[:-1] if text.startswith("engine(") else text
    spec.check(eval(text, {"np": np, "images": images}))


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_what_is_not_finite_is_counted_and_placed(value, name):
    images = NCHW.copy()
    images[1, 2, 100, 7] = value
    problem = refused(TAKES_FLOAT, images).problem
    assert "1 values" in problem
    assert name in problem
    assert "row 1" in problem


@pytest.mark.parametrize(("value", "fits"), [(1.0009, True), (1.0011, False), (-0.0009, True), (-0.0011, False)])
def test_resampling_may_overshoot_by_a_thousandth(value, fits):
    images = NCHW.copy()
    images[0, 0, 0, 0] = value
    if fits:
        assert TAKES_FLOAT.check(images).batch == 2
    else:
        assert "row 0" in refused(TAKES_FLOAT, images).problem


def test_a_tensor_without_memory_is_refused():
    import torch

    error = refused(TAKES_FLOAT, torch.empty((2, 3, 224, 224), device="meta"))
    assert "neither the host nor a CUDA GPU" in error.problem


@pytest.mark.parametrize("outputs", [5, [["coeffs"]], [None]])
def test_outputs_that_are_no_names_are_refused(outputs):
    with pytest.raises(InputError, match=r"outputs=.* are no names"):
        TAKES_FLOAT.choose(outputs)


@pytest.mark.parametrize("out", [[np.empty((2, 257), np.float32)], np.empty((2, 257), np.float32)])
def test_out_without_names_is_refused(out):
    with pytest.raises(InputError, match=r"out is (list|ndarray)"):
        TAKES_FLOAT.arrays(("coeffs",), 2, out)


def test_values_are_not_looked_at_without_check():
    spec = Spec((FLOAT,), OUTPUTS, (P_FLOAT,), check=False)
    assert spec.check(NCHW * np.nan).batch == 2
    refused(spec, NHWC)  # all else is


def test_outputs_are_names_in_the_order_asked_for():
    assert TAKES_FLOAT.choose(None) == ("coeffs", "vertex")
    assert TAKES_FLOAT.choose(["vertex", "coeffs", "vertex"]) == ("vertex", "coeffs")
    for wrong in (["texture"], [], "coeffs"):
        with pytest.raises(InputError) as caught:
            TAKES_FLOAT.choose(wrong)
        assert "coeffs" in str(caught.value)


def test_results_go_into_the_callers_arrays():
    whole = np.zeros((8, 257), np.float32)
    arrays = TAKES_FLOAT.arrays(("coeffs", "vertex"), 2, {"coeffs": whole[2:4]})
    assert np.shares_memory(arrays["coeffs"], whole)
    assert arrays["vertex"].shape == (2, 20, 3)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 257), np.float32), "shape (3, 257)"),
        (np.zeros((2, 257)), "float64"),
        (np.zeros((257, 2), np.float32).T, "not C-contiguous"),
        (np.broadcast_to(np.float32(0), (2, 257)), "not"),
        ([[0.0] * 257] * 2, "list"),
    ],
)
def test_an_array_that_cannot_be_written_to_is_refused(array, words):
    with pytest.raises(InputError) as caught:
        TAKES_FLOAT.arrays(("coeffs",), 2, {"coeffs": array})
    assert words in caught.value.problem
    assert "(2, 257)" in caught.value.allowed


def test_an_array_for_what_is_not_computed_is_refused():
    with pytest.raises(InputError, match="not computed"):
        TAKES_FLOAT.arrays(("coeffs",), 2, {"vertex": np.zeros((2, 20, 3), np.float32)})


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ((FLOAT, UINT8), OUTPUTS),
        ((TensorRecord(name="input", dtype="float16", shape=(-1, 3, -1, -1)),), OUTPUTS),
        ((FLOAT,), (TensorRecord(name="coeffs", dtype="float32", shape=(-1, -1)),)),
    ],
)
def test_a_foreign_network_is_refused(inputs, outputs):
    with pytest.raises(GraphError, match="no network of face3d-trt"):
        Spec(inputs, outputs)


def test_a_service_that_asks_for_many_sizes_does_not_fill_memory():
    spec = Spec((UINT8,), OUTPUTS, ())
    for height in range(64, 264):
        for width in (64, 65, 66, 67, 68, 69, 70, 71):
            assert spec.check(np.broadcast_to(np.uint8(0), (1, height, width, 3))).batch == 1
    assert len(spec._seen) <= 1024


def test_the_check_of_a_picture_takes_microseconds():
    images = NHWC[:1]
    TAKES_UINT8.check(images)
    best = min(_timed(images) for _ in range(20))
    assert best < 10e-6  # 0.5 µs measured; the bound leaves room for a busy machine


def _timed(images: np.ndarray, calls: int = 500) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        TAKES_UINT8.check(images)
    return (time.perf_counter() - begun) / calls
