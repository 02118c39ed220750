"""Batches meet optimization profiles."""

from __future__ import annotations

import itertools

import pytest

from face3d_trt.errors import InputError
from face3d_trt.records import ProfileRecord
from face3d_trt.runtime.pieces import Limits, limits_of, plan_pieces

SIDE = (224, 224, 224)


def batches(*spans: tuple[int, int, int]) -> tuple[Limits, ...]:
    return tuple(Limits(index, span, SIDE, SIDE) for index, span in enumerate(spans))


def sizes(batch: int, limits: tuple[Limits, ...]) -> list[tuple[int, int]]:
    return [(piece.rows, piece.profile) for piece in plan_pieces(batch, 224, 224, limits)]


def can_be_summed(batch: int, limits: tuple[Limits, ...]) -> int | None:
    """Fewest pieces, by trying all numbers of pieces of all profiles: an independent way to the same answer."""
    most = batch // min(each.batch[0] for each in limits)
    for count in range(1, most + 1):
        for chosen in itertools.combinations_with_replacement(limits, count):
            if sum(each.batch[0] for each in chosen) <= batch <= sum(each.batch[2] for each in chosen):
                return count
    return None


@pytest.mark.parametrize(
    ("batch", "profile"),
    [(1, 0), (4, 0), (5, 0), (6, 1), (8, 1), (9, 1), (22, 1), (23, 2), (32, 2), (64, 2)],
)
def test_the_profile_tuned_for_the_nearest_batch_as_a_ratio_takes_it(batch, profile):
    limits = batches((1, 4, 8), (1, 8, 32), (1, 64, 64))  # 4 and 8 part at 5.7, 8 and 64 at 22.6
    assert sizes(batch, limits) == [(batch, profile)]


@pytest.mark.parametrize(("batch", "profile"), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (128, 1), (256, 1)])
def test_a_profile_for_one_picture_has_the_small_batches_that_it_holds(batch, profile):
    assert sizes(batch, batches((1, 1, 4), (1, 256, 256))) == [(batch, profile)]


def test_of_two_equally_near_ones_the_one_above_counts_and_of_equal_ones_the_narrower():
    assert sizes(2, batches((1, 1, 8), (1, 4, 8))) == [(2, 1)]
    assert sizes(15, batches((1, 9, 32), (1, 25, 32))) == [(15, 1)]  # 5 / 3 either way
    assert sizes(7, batches((1, 2, 8), (1, 4, 8))) == [(7, 1)]
    assert sizes(3, batches((1, 4, 32), (1, 4, 8))) == [(3, 1)]


def test_of_equal_ones_the_profile_tuned_for_that_picture_size_takes_it():
    wide = Limits(0, (1, 8, 32), (64, 512, 1024), (64, 512, 1024))
    crop = Limits(1, (1, 8, 32), SIDE, SIDE)
    assert plan_pieces(8, 224, 224, (wide, crop))[0].profile == 1
    assert plan_pieces(8, 600, 400, (wide, crop))[0].profile == 0


def test_a_batch_above_the_largest_is_cut_into_full_pieces_and_a_ragged_rest():
    limits = batches((1, 1, 4), (1, 32, 32))
    assert sizes(70, limits) == [(32, 1), (32, 1), (6, 1)]
    assert sizes(65, limits) == [(32, 1), (32, 1), (1, 0)]
    assert sizes(64, limits) == [(32, 1), (32, 1)]


def test_a_rest_below_the_smallest_batch_takes_rows_from_a_full_piece():
    limits = batches((8, 16, 32))
    assert sizes(36, limits) == [(28, 0), (8, 0)]
    assert [rows for rows, _ in sizes(100, limits)] == [32, 32, 28, 8]


def test_a_gap_between_profiles_is_crossed():
    assert sizes(6, batches((1, 1, 4), (8, 8, 16))) == [(4, 0), (2, 0)]


@pytest.mark.parametrize(
    "limits", [batches((5, 5, 5), (7, 7, 7)), batches((3, 3, 4), (9, 9, 10)), batches((2, 3, 3)), batches((4, 4, 4))]
)
def test_whatever_can_be_split_is_and_in_few_pieces(limits):
    largest = max(each.batch[2] for each in limits)
    for batch in range(1, 41):
        fewest = can_be_summed(batch, limits)
        if fewest is None:
            with pytest.raises(InputError, match="no split of it does"):
                plan_pieces(batch, 224, 224, limits)
            continue
        pieces = plan_pieces(batch, 224, 224, limits)
        assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
        assert pieces[-1].stop == batch
        for piece in pieces:
            low, _, high = limits[piece.profile].batch
            assert low <= piece.rows <= high
        assert fewest <= len(pieces) <= fewest + largest


def test_every_row_of_any_batch_runs_once():
    limits = batches((1, 1, 4), (1, 8, 32))
    for batch in range(1, 200):
        covered = [row for piece in plan_pieces(batch, 224, 224, limits) for row in range(piece.start, piece.stop)]
        assert covered == list(range(batch))


def test_a_picture_size_outside_every_profile_is_named_with_what_there_is():
    with pytest.raises(InputError, match="height 200 and width 224") as caught:
        plan_pieces(1, 200, 224, batches((1, 8, 32)))
    assert caught.value.allowed == "batch 1 to 32 at 224 x 224"


def test_axes_are_read_from_either_layout():
    nchw = ProfileRecord(min=(1, 3, 64, 96), opt=(2, 3, 65, 97), max=(4, 3, 66, 98))
    nhwc = ProfileRecord(min=(1, 64, 96, 3), opt=(2, 65, 97, 3), max=(4, 66, 98, 3))
    expected = (Limits(0, (1, 2, 4), (64, 65, 66), (96, 97, 98)),)
    assert limits_of([nchw], "float32") == limits_of([nhwc], "uint8") == expected
