"""For schemathesis: what a picture is, which no schema can say. Loaded by it, from SCHEMATHESIS_HOOKS."""

from __future__ import annotations

import io

import numpy as np
import schemathesis
from hypothesis import strategies
from PIL import Image

CROP = np.random.default_rng(1).integers(0, 256, (224, 224, 3), np.uint8)


def picture(kind: str) -> bytes:
    """An aligned crop, in which no face has to be found."""
    file = io.BytesIO()
    Image.fromarray(CROP).save(file, kind)
    return file.getvalue()


for name in ("jpeg", "png", "webp", "bmp"):
    schemathesis.openapi.media_type(f"image/{name}", strategies.just(picture(name)))

RAW = strategies.sampled_from([CROP.tobytes(), CROP.tobytes() * 2])
schemathesis.openapi.media_type("application/octet-stream", RAW)
schemathesis.openapi.format("binary", strategies.just(picture("png")))  # files of a form
