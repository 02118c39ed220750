"""Sizes as people write them."""

from __future__ import annotations

import pytest

from face3d_trt.engine.sizes import format_size, parse_size
from face3d_trt.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", 2**30),
        ("512MiB", 2**29),
        ("512 mib", 2**29),
        ("1.5GiB", 3 * 2**29),
        ("2GB", 2 * 10**9),
        ("4K", 4096),
        ("1000", 1000),
        ("1000B", 1000),
    ],
)
def test_sizes_with_and_without_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1 TiB!", "-1GiB", "0", "1e9", "1,5GiB", "0.1B", "many"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert "GiB" in caught.value.allowed
    assert "--workspace 1GiB" in caught.value.run


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (3884484, "3.7 MiB"), (2**31, "2.00 GiB")],
)
def test_sizes_for_reading(size: int, text: str) -> None:
    assert format_size(size) == text
