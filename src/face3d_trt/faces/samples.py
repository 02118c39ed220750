"""Aligned faces inside the package: for precision passes and checks that need real pictures and have none."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np

from face3d_trt.errors import MissingError
from face3d_trt.faces.images import Pixels, image_files, read_image
from face3d_trt.names import CROP
from face3d_trt.optional import reinstall_command

SAMPLES = 8
CHOICE = 16


def sample_crops() -> Pixels:
    """The pictures of the package's folder `faces/data`, in the order of their names: (8, 224, 224, 3) uint8 RGB.

    Raises:
        MissingError: The installed package has lost its pictures.
        ImageError: One of them is damaged.
    """
    return _crops("data", SAMPLES)


def choice_crops() -> Pixels:
    """Other faces, by which something may be chosen that the samples judge: (16, 224, 224, 3) uint8 RGB.

    Raises:
        MissingError: The installed package has lost its pictures.
        ImageError: One of them is damaged.
    """
    return _crops("choice", CHOICE)


def _crops(name: str, count: int) -> Pixels:
    with as_file(files("face3d_trt.faces") / name) as folder:
        crops = [read_image(folder / name) for name in image_files(folder)[0]]
    if len(crops) != count or any(crop.shape != (CROP, CROP, 3) for crop in crops):
        raise MissingError(
            f"the package's sample faces are incomplete: {len(crops)} pictures in {folder}",
            allowed=f"{count} pictures of {CROP}x{CROP} px",
            run=reinstall_command(),
        )
    return np.stack(crops)
