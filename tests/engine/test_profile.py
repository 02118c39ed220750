"""Profiles: what is read, what is refused, and what the message says."""

from __future__ import annotations

import pytest

from face3d_trt.engine.profile import Profile
from face3d_trt.errors import ProfileError

TEXT = "min=1x3x224x224,opt=8x3x224x224,max=32x3x224x224"


def test_a_profile_is_read_and_written_alike() -> None:
    profile = Profile.parse(TEXT)
    assert (profile.min, profile.opt, profile.max) == ((1, 3, 224, 224), (8, 3, 224, 224), (32, 3, 224, 224))
    assert str(profile) == TEXT
    assert Profile.parse("max=32x3x224x224, min=1x3x224x224, opt=8x3x224x224") == profile


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not begin with"),
        ("8x3x224x224", "does not begin with"),
        ("min=1x3x224x224", "opt and max are missing"),
        ("min=1x3x224x224,opt=8x3x224x224", "max is missing"),
        (TEXT + ",max=1x3x224x224", "max stands there twice"),
        ("min=1x3x224,opt=8x3x224x224,max=32x3x224x224", "min has 3 dimensions, not 4"),
        ("min=1x3x224x224,opt=8*3*224*224,max=32x3x224x224", "opt is '8*3*224*224'"),
        ("min=1x3x224x-224,opt=8x3x224x224,max=32x3x224x224", "min is '1x3x224x-224'"),
        ("min=1x3x224x224,opt=8x3x224x224,max=", "max is ''"),
        ("min=1x3x224x224,opt=8x3x224x224,max=32x3x22.4x224", "max is"),
    ],
)
def test_a_malformed_profile_is_refused_with_a_right_example(text: str, problem: str) -> None:
    with pytest.raises(ProfileError) as caught:
        Profile.parse(text)
    assert problem in caught.value.problem
    assert TEXT in caught.value.run


@pytest.mark.parametrize(
    ("layout", "text", "problem", "allowed"),
    [
        ("float32", "min=0x3x224x224,opt=8x3x224x224,max=32x3x224x224", "batch of min is 0", "a batch from 1 to"),
        (
            "float32",
            "min=9x3x224x224,opt=8x3x224x224,max=32x3x224x224",
            "batch is min=9, opt=8, max=32",
            "min <= opt <= max",
        ),
        (
            "float32",
            "min=1x3x224x224,opt=8x3x512x224,max=32x3x224x224",
            "height is min=224, opt=512",
            "min <= opt <= max",
        ),
        ("float32", "min=1x3x63x224,opt=8x3x224x224,max=32x3x224x224", "height of min is 63", "height from 64 to 1024"),
        (
            "float32",
            "min=1x3x224x224,opt=8x3x224x224,max=32x3x224x1025",
            "width of max is 1025",
            "width from 64 to 1024",
        ),
        (
            "float32",
            "min=1x4x224x224,opt=8x4x224x224,max=32x4x224x224",
            "channels of min is 4",
            "(batch, 3, height, width)",
        ),
        ("uint8", TEXT, "height of min is 3", "height from 64 to 1024"),
        (
            "uint8",
            "min=1x224x224x4,opt=8x224x224x4,max=32x224x224x4",
            "channels of min is 4",
            "(batch, height, width, 3)",
        ),
    ],
)
def test_a_profile_outside_the_graph_is_refused_by_dimension(
    layout: str, text: str, problem: str, allowed: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        Profile.parse(text).check(layout)  # type: ignore[arg-type]
    assert problem in caught.value.problem
    assert allowed in caught.value.allowed


@pytest.mark.parametrize("layout", ["float32", "uint8"])
def test_the_default_and_the_example_in_the_message_fit_the_layout(layout: str) -> None:
    default = Profile.default(layout)  # type: ignore[arg-type]
    default.check(layout)  # type: ignore[arg-type]
    assert [shape[0] for shape in (default.min, default.opt, default.max)] == [1, 8, 32]
    with pytest.raises(ProfileError) as caught:
        Profile.parse("min=1x9x9x9,opt=1x9x9x9,max=1x9x9x9").check(layout)  # type: ignore[arg-type]
    Profile.parse(caught.value.run.split("'")[1]).check(layout)  # type: ignore[arg-type]


def test_the_edges_of_the_range_are_inside() -> None:
    Profile.parse("min=1x3x64x64,opt=1x3x1024x64,max=512x3x1024x1024").check("float32")
