from __future__ import annotations

import numpy as np
import pytest

from face3d_trt.errors import UsageError
from face3d_trt.faces.tensor import to_input


def test_float_input_is_nchw_rgb_between_0_and_1(crops):
    tensor = to_input(crops, "float32")
    assert (tensor.shape, tensor.dtype, tensor.flags.c_contiguous) == ((3, 3, 224, 224), np.float32, True)
    for batch, channel, row, column in ((0, 0, 5, 7), (1, 1, 200, 3), (2, 2, 0, 223)):
        assert tensor[batch, channel, row, column] == np.float32(crops[batch, row, column, channel]) / np.float32(255)
    assert to_input(np.full((1, 2, 2, 3), 255, np.uint8), "float32").max() == 1.0


def test_byte_input_is_the_crops(crops):
    view = crops[:, ::2, ::2]
    tensor = to_input(view, "uint8")
    assert tensor.flags.c_contiguous
    assert np.array_equal(tensor, view)
    assert tensor.dtype == np.uint8


@pytest.mark.parametrize(
    "bad", [np.zeros((224, 224, 3), np.uint8), np.zeros((1, 3, 8, 8), np.uint8), np.zeros((1, 8, 8, 3))]
)
def test_what_is_no_batch_of_pictures_is_refused(bad):
    with pytest.raises(UsageError, match="not pictures"):
        to_input(bad, "float32")


def test_an_unknown_input_names_the_two(crops):
    with pytest.raises(UsageError) as caught:
        to_input(crops, "float16")
    assert "float32, uint8" in str(caught.value)
