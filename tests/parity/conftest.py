"""What several files of this folder need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from face3d_trt.decode import Decoder


@pytest.fixture(scope="session")
def decoder(standin: Path) -> Decoder:
    """Of the small stand-in's morphable model."""
    from face3d_trt.decode import Decoder
    from face3d_trt.model.load import read_morphable
    from face3d_trt.model.morphable import MorphableModel

    return Decoder.of(MorphableModel(read_morphable(standin / "assets/BFM_model_front.mat")))
