"""Makes the pictures that ship. Run from the project's root.

`calibration/` (128), the package's sample faces (8), and those by which `build --until-passes` chooses (16).
Renders of the procedural morphable model; among the samples two variants of NASA's portrait of the astronaut Eileen
Collins (public domain, as scikit-image distributes it). Needs the extras `export`, `detect` and `dev`.

Usage: python tools/make_demo_faces.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from skimage import data

from face3d_trt.faces.align import align
from face3d_trt.faces.detect import detector
from face3d_trt.model.morphable import MorphableModel
from face3d_trt.model.procedural import procedural_arrays
from face3d_trt.model.random_faces import random_photographs
from face3d_trt.model.render import Renderer
from face3d_trt.model.standin import SIZES

SEED = 20_000  # renders of training and tests use other seeds
RENDERS = 128
CHUNK = 16  # pictures rendered at once
SAMPLE_PORTRAITS, SAMPLE_RENDERS = 2, 6
CHOICE_RENDERS = 16


def renders(count: int, seed: int) -> list[Image.Image]:
    """Photographs of random procedural faces, 224 px."""
    model = MorphableModel(procedural_arrays(SIZES["small"].vertices, SIZES["small"].boundary))
    generator = torch.Generator().manual_seed(seed)
    renderer, images = Renderer(model), []
    for start in range(0, count, CHUNK):
        pictures, _ = random_photographs(renderer, min(CHUNK, count - start), generator)
        pixels = (pictures.permute(0, 2, 3, 1).numpy() * 255).round().astype(np.uint8)
        images += [Image.fromarray(p) for p in pixels]
    return images


def portraits(count: int, seed: int) -> list[Image.Image]:
    """The portrait, aligned; all but the first mirrored, turned, moved, lit or blurred at random."""
    model = MorphableModel(procedural_arrays(SIZES["small"].vertices, SIZES["small"].boundary))
    landmarks = model.mean_shape.reshape(-1, 3)[model.keypoints].numpy().astype(np.float64)
    template = np.stack([landmarks[[36, 39]].mean(0), landmarks[[42, 45]].mean(0), *landmarks[[30, 48, 54]]])
    photo = data.astronaut()
    (face,) = detector("mtcnn").detect(photo, "astronaut")
    rng = np.random.default_rng(seed)
    results = [Image.fromarray(align(photo, face.points, template).crop)]
    for index in range(1, count):
        angle, size = rng.uniform(-12, 12), rng.uniform(0.92, 1.08)
        turned = Image.fromarray(photo).rotate(angle, Image.Resampling.BICUBIC, center=tuple(face.points[2]))
        cos, sin = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
        turn = np.array([[cos, sin], [-sin, cos]])
        points = (face.points - face.points[2]) @ turn.T + face.points[2]
        points = (points - points.mean(0)) * size + points.mean(0) + rng.normal(0, 1.5, 2)
        crop = Image.fromarray(align(np.asarray(turned), points, template).crop)
        crop = ImageOps.mirror(crop) if index % 2 else crop
        crop = ImageEnhance.Brightness(crop).enhance(rng.uniform(0.6, 1.25))
        crop = ImageEnhance.Color(crop).enhance(rng.uniform(0.4, 1.3))
        results.append(ImageEnhance.Contrast(crop).enhance(rng.uniform(0.8, 1.2)))
    return results


def write(folder: Path, pictures: dict[str, list[Image.Image]]) -> None:
    """Replace the JPEG files of `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jpg"):
        old.unlink()
    for kind, images in pictures.items():
        for index, image in enumerate(images):
            image.save(folder / f"{kind}_{index:03d}.jpg", quality=92)


if __name__ == "__main__":
    write(Path("calibration"), {"render": renders(RENDERS, SEED)})
    samples = {"portrait": portraits(SAMPLE_PORTRAITS, SEED + 1), "render": renders(SAMPLE_RENDERS, SEED + 1)}
    write(Path("src/face3d_trt/faces/data"), samples)
    write(Path("src/face3d_trt/faces/choice"), {"render": renders(CHOICE_RENDERS, SEED + 2)})
