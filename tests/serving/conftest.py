"""Servers that several tests use; none of them may be left unhealthy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.serving.served import Served, serving
from tests.tiny import write_tiny

LIMITS = (
    *("--max-pixels", "4000000", "--max-body", "4MiB", "--max-images", "3", "--max-crops", "8", "--max-queue", "16"),
    *("--body-time", "1s", "--deadline", "30s", "--photo-workers", "1", "--fronts", "1"),
)


@pytest.fixture(scope="session")
def server(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The learned stand-in with its morphable model, with small limits."""
    with serving(exported, tmp_path_factory.mktemp("serve") / "log", *LIMITS) as served:
        yield served


@pytest.fixture(scope="session")
def tiny_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with uint8 input that takes next to no time."""
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.onnx", layout="uint8")


@pytest.fixture(scope="module")
def crops_server(tiny_plan: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Crops only, two engines, two fronts."""
    options = ("--photo-workers", "0", "--replicas", "2", "--fronts", "2", "--deadline", "3s")
    with serving(tiny_plan, tmp_path_factory.mktemp("serve") / "log", *options) as served:
        yield served


@pytest.fixture(scope="session")
def photo(astronaut: Path) -> bytes:
    """The demo photo, PNG."""
    return astronaut.read_bytes()


@pytest.fixture(scope="session")
def many_crops() -> np.ndarray:
    """(32, 224, 224, 3) uint8 RGB, each unlike the others."""
    coarse = np.random.default_rng(8).integers(0, 256, (32, 7, 7, 3), np.uint8)
    return coarse.repeat(32, axis=1).repeat(32, axis=2)
