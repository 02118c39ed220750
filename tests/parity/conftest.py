"""What several files of this folder need."""

from __future__ import annotations

from pathlib import Path

import pytest

from face3d_trt.decode import Decoder
from face3d_trt.model.load import read_morphable
from face3d_trt.model.morphable import MorphableModel


@pytest.fixture(scope="session")
def decoder(standin: Path) -> Decoder:
    """Of the small stand-in's morphable model."""
    return Decoder.of(MorphableModel(read_morphable(standin / "assets/BFM_model_front.mat")))
