from __future__ import annotations

import numpy as np
import pytest

from face3d_trt.errors import PlanError, UsageError
from face3d_trt.parity.batches import Batch, batches, parse_image_size, resize
from face3d_trt.records import ProfileRecord


def profile(low: int, opt: int, high: int, side: int = 224) -> ProfileRecord:
    return ProfileRecord(min=(low, 3, side, side), opt=(opt, 3, side, side), max=(high, 3, side, side))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 8, 32), [1, 8, 31, 32]),
        ((1, 4, 4), [1, 3, 4]),
        ((1, 3, 4), [1, 3, 4]),
        ((1, 1, 1), [1]),
        ((1, 1, 2), [1, 2]),
    ],
)
def test_smallest_opt_max_and_a_ragged_size(sizes: tuple[int, int, int], expected: list[int]) -> None:
    assert [batch.size for batch in batches([profile(*sizes)], "float32")] == expected


def test_a_ragged_size_is_found_where_max_less_one_is_opt() -> None:
    assert [batch.size for batch in batches([profile(1, 7, 8)], "float32")] == [1, 3, 7, 8]


def test_every_profile_is_covered() -> None:
    found = batches([profile(1, 1, 4), profile(4, 8, 16, 128)], "float32")
    assert [(b.profile, b.size, b.height) for b in found] == [
        (0, 1, 224),
        (0, 3, 224),
        (0, 4, 224),
        (1, 4, 128),
        (1, 8, 128),
        (1, 15, 128),
        (1, 16, 128),
    ]


def test_uint8_layout_and_image_sizes_that_grow() -> None:
    growing = ProfileRecord(min=(1, 64, 64, 3), opt=(2, 224, 128, 3), max=(2, 512, 512, 3))
    found = [(b.size, b.height, b.width) for b in batches([growing], "uint8")]
    assert found == [(1, 64, 64), (2, 224, 128), (2, 512, 512)]


def test_a_profile_of_the_other_layout_is_refused() -> None:
    with pytest.raises(PlanError, match="profile 0"):
        batches([profile(1, 1, 1)], "uint8")
    with pytest.raises(PlanError, match="no optimization profile"):
        batches([], "float32")


@pytest.mark.parametrize("pictures", [1, 8, 9, 32])
def test_every_picture_is_run_at_every_size_and_every_row_is_filled(pictures: int) -> None:
    for batch in batches([profile(1, 8, 32)], "float32"):
        runs = list(batch.fill(pictures))
        assert all(run.shape == (batch.size,) for run in runs)
        assert set(np.concatenate(runs).tolist()) == set(range(pictures))


def test_of_very_many_pictures_those_run_alone_are_spread_evenly() -> None:
    alone = [int(index) for (index,) in Batch(0, 1, 224, 224).fill(1000)]
    assert len(alone) == 64
    assert (alone[0], alone[-1]) == (0, 999)
    assert set(np.diff(alone)) == {15, 16}
    assert set(np.concatenate(list(Batch(0, 3, 224, 224).fill(1000))).tolist()) == set(range(1000))


def test_image_sizes_are_height_by_width_within_the_graphs_range() -> None:
    assert parse_image_size("160x192") == (160, 192)
    for text in ("160", "160x", "0x192", "63x224", "224x1025", "a x b", "224x224x3"):
        with pytest.raises(UsageError, match="--size"):
            parse_image_size(text)


def test_crops_are_resized_only_where_the_profile_asks_for_it() -> None:
    crops = np.zeros((2, 224, 224, 3), np.uint8)
    crops[:, :, 112:] = 200
    assert resize(crops, 224, 224) is crops
    larger = resize(crops, 64, 448)
    assert larger.shape == (2, 64, 448, 3)
    assert larger[0, 30, 100].tolist() == [0, 0, 0]
    assert larger[0, 30, 400].tolist() == [200, 200, 200]
