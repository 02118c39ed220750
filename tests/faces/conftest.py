from __future__ import annotations

import numpy as np
import pytest

# Made up: a face about 20 cm high whose nose points at the viewer. 1.0 = 100 mm, y up.
TEMPLATE = np.array([(-0.31, 0.29, 0.1), (0.31, 0.29, 0.1), (0.0, -0.03, 0.5), (-0.25, -0.38, 0.2), (0.25, -0.38, 0.2)])


@pytest.fixture(scope="session")
def template() -> np.ndarray:
    return TEMPLATE.copy()


@pytest.fixture(scope="session")
def portrait() -> np.ndarray:
    """A public-domain portrait with one face: (512, 512, 3) uint8 RGB."""
    from skimage import data

    image: np.ndarray = data.astronaut()
    image.setflags(write=False)
    return image


@pytest.fixture
def crops() -> np.ndarray:
    """Three different pictures of the size of an aligned crop."""
    return np.random.default_rng(5).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
