"""Draws `docs/faces.jpg`: pictures above, and below them what the stand-in's network reads, drawn by the same renderer.

Unseen renders and the aligned portrait of the astronaut. Needs the extras `export`, `detect` and `dev`.

Usage: python tools/make_picture.py MODEL_DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from skimage import data

from face3d_trt.faces.align import align
from face3d_trt.faces.detect import detector
from face3d_trt.model.load import load_model
from face3d_trt.model.random_faces import random_photographs
from face3d_trt.model.render import Renderer
from face3d_trt.model.train import TEST_SEED

COLUMNS = 6
GREY = 0.93


def main() -> None:
    """Render, read, draw, write."""
    model = load_model(sys.argv[1])
    assert model.morphable is not None
    renderer = Renderer(model.morphable)
    photo = data.astronaut()
    (face,) = detector("mtcnn").detect(photo, "astronaut")
    portrait = torch.from_numpy(align(photo, face.points, model.template).crop.copy()).permute(2, 0, 1)[None] / 255
    with torch.inference_mode():
        renders, _ = random_photographs(renderer, COLUMNS - 1, torch.Generator().manual_seed(TEST_SEED))
        pictures = torch.cat([renders, portrait])
        read = renderer(model.network(pictures), torch.full_like(pictures, GREY))
    rows = torch.cat([torch.cat(list(row), 2) for row in (pictures, read)], 1)
    pixels = (rows.clamp(0, 1).permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    Image.fromarray(pixels).save(Path("docs/faces.jpg"), quality=88)


if __name__ == "__main__":
    main()
