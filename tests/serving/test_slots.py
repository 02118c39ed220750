"""Room for crops: never given twice, never lost."""

from __future__ import annotations

import random

from face3d_trt.serving.slots import Allocator, Slab


def test_rows_are_never_given_twice_and_none_is_lost():
    random.seed(3)
    rows, allocator = 97, Allocator(97)
    held: dict[int, int] = {}
    owner: list[int | None] = [None] * rows
    for step in range(4000):
        if held and random.random() < 0.5:
            start = random.choice(list(held))
            size = held.pop(start)
            allocator.free(start, size)
            owner[start : start + size] = [None] * size
        else:
            size = random.choice((1, 1, 1, 2, 5, 20))
            start = allocator.take(size)
            longest = max(map(len, "".join("." if each is None else "x" for each in owner).split("x")))
            assert (start is not None) == (longest >= size), step
            if start is not None:
                assert owner[start : start + size] == [None] * size
                owner[start : start + size] = [step] * size
                held[start] = size
        assert allocator.used == sum(each is not None for each in owner)
    for start, size in held.items():
        allocator.free(start, size)
    assert allocator.take(rows) == 0


def test_another_mapping_of_the_file_has_the_same_crops():
    one = Slab(3)
    other = Slab(3, one.file)
    one.bytes_of(1, 1)[:] = bytes(range(256)) * (224 * 224 * 3 // 256)
    other.coeffs[2] = 7
    assert other.crops[1].reshape(-1)[:256].tolist() == list(range(256))
    assert not other.crops[0].any()
    assert (one.coeffs[2] == 7).all()
