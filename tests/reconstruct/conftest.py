"""A run over a folder as people have them, which several tests look at."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.reconstruct.known import make_coeffs
from tests.reconstruct.mixed import write_mixed

from face3d_trt.reconstruct.options import ReconstructOptions
from face3d_trt.reconstruct.pipeline import reconstruct
from face3d_trt.reconstruct.products import ProductOptions
from face3d_trt.report import SILENT

if TYPE_CHECKING:
    from face3d_trt.reconstruct.decoder import FaceDecoder
    from face3d_trt.reconstruct.facefile import FaceFile
    from face3d_trt.reconstruct.start import Summary

COEFFS = ProductOptions(frozenset({"coeffs"}))


@dataclass(frozen=True)
class Finished:
    """A run and what it left."""

    output: Path
    summary: Summary

    def records(self) -> dict[str, dict[str, Any]]:
        """By name, in the order of the list."""
        return {each["name"]: each for each in map(json.loads, self.lines()[1:])}

    def lines(self) -> list[str]:
        """Of the list of results."""
        return (self.output / "results.jsonl").read_text().splitlines()

    def tree(self) -> dict[str, bytes]:
        """Every file, by name."""
        return {
            path.relative_to(self.output).as_posix(): path.read_bytes()
            for path in self.output.rglob("*")
            if path.is_file()
        }

    def coeffs(self, name: str) -> np.ndarray:
        """(257,) of one picture, (N, 257) of a block of crops."""
        (path,) = (self.output / name).glob("*.npy")
        return np.load(path)


def run(output: Path, plan: Path, *sources: Path | str, **options: Any) -> Finished:
    """Reconstruct in this process: coefficients alone, on the CPU."""
    watch, report = options.pop("watch", None), options.pop("report", SILENT)
    settings = {"products": COEFFS, "devices": "cpu", "workers": 1} | options
    summary = reconstruct(ReconstructOptions(tuple(map(str, sources)), output, plan, **settings), report, watch)
    return Finished(output, summary)


@pytest.fixture(scope="session")
def crops() -> np.ndarray:
    """(8, 224, 224, 3) uint8 RGB: the package's samples."""
    from face3d_trt.faces.samples import sample_crops

    return sample_crops()


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory, astronaut: Path, crops: np.ndarray) -> tuple[Path, dict[str, str]]:
    """A folder, and what has to become of each of its files."""
    folder = tmp_path_factory.mktemp("mixed") / "photos"
    return folder, write_mixed(folder, astronaut, crops)


@pytest.fixture(scope="session")
def mixed_run(mixed: tuple[Path, dict[str, str]], exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """That folder, reconstructed."""
    return run(tmp_path_factory.mktemp("run") / "out", exported, mixed[0])


@pytest.fixture(scope="session")
def face_file() -> FaceFile:
    """A procedural morphable model of 2400 vertices."""
    from face3d_trt.decode import Decoder
    from face3d_trt.model.morphable import MorphableModel
    from face3d_trt.model.procedural import disc, procedural_arrays
    from face3d_trt.reconstruct.facefile import FaceFile, FaceRecord

    record = FaceRecord(
        source="made up",
        revision=None,
        weights="seeded",
        checkpoint_sha256="0" * 64,
        uv="model",
        version="test",
    )
    basis = Decoder.of(MorphableModel(procedural_arrays(2400, 160)))
    return FaceFile(record, basis, (disc(2400, 160) / 2 + 0.5).astype(np.float32))


@pytest.fixture(scope="session")
def decoder(face_file: FaceFile) -> FaceDecoder:
    """Of that model."""
    from face3d_trt.reconstruct.decoder import FaceDecoder

    return FaceDecoder(face_file)


@pytest.fixture
def coeffs() -> np.ndarray:
    """A face like no other, looking ahead, in white light."""
    return make_coeffs()
