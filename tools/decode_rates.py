"""JPEG files decoded by Pillow, by nvImageCodec's CUDA decoder, by the GPU's JPEG engine: files/s, and how far apart.

    python tools/decode_rates.py --out build/decode.json
    python tools/decode_rates.py --out build/decode.json --device cpu        # the codec's own decoder on the CPU

Pillow has one thread, the codec what `Codec` gives it; pictures end in the host's memory. Writes after each line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
SIDES, SUBSAMPLINGS, FILES, AT_ONCE = (224, 1024, 3000), ("4:4:4", "4:2:0"), 8, 32


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="0", help="index of the GPU, or cpu")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each figure")
    chosen = parser.parse_args(words)
    rows: list[dict[str, Any]] = []
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, read in readers(chosen.device).items():
            for side in SIDES:
                for subsampling in SUBSAMPLINGS:
                    paths = make(Path(folder), side, subsampling)
                    row = {"by": name, "side": side, "subsampling": subsampling} | measure(read, paths, chosen.seconds)
                    rows.append(row)
                    print(json.dumps(row), flush=True)
                    chosen.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def readers(device: str) -> dict[str, Callable[[Sequence[str]], list[Any]]]:
    """What decodes, by name."""
    from face3d_trt.faces.images import read_image
    from face3d_trt.reconstruct.codec import Codec
    from face3d_trt.reconstruct.gpus import CPU

    found: dict[str, Callable[[Sequence[str]], list[Any]]] = {"pillow": lambda paths: [read_image(p) for p in paths]}
    if device == "cpu":
        return found | {"codec on the CPU": Codec(CPU).read}
    return found | {"CUDA": Codec(int(device)).read, "JPEG engine and CUDA": Codec(int(device), hardware=True).read}


def make(folder: Path, side: int, subsampling: str) -> list[str]:
    """As many files of one kind as the codec is given in a run, some of them several times."""
    from PIL import Image

    from face3d_trt.faces.samples import sample_crops

    paths = []
    for index, crop in enumerate(sample_crops()[:FILES]):
        path = folder / f"{side}-{subsampling.replace(':', '')}-{index}.jpg"
        if not path.exists():
            noise = np.random.default_rng(index).integers(-12, 13, (side, side, 1))
            large = np.asarray(Image.fromarray(crop).resize((side, side))).astype(int) + noise
            Image.fromarray(large.clip(0, 255).astype(np.uint8)).save(path, quality=90, subsampling=subsampling)
        paths.append(str(path))
    return paths * (AT_ONCE // FILES)


def measure(read: Callable[[Sequence[str]], list[Any]], paths: list[str], seconds: float) -> dict[str, Any]:
    """Files a second, and the mean and largest difference to Pillow in levels."""
    from face3d_trt.faces.images import read_image

    pictures = read(paths)
    refused = sum(picture is None for picture in pictures)
    apart = [
        np.abs(p.astype(int) - read_image(path)) for p, path in zip(pictures[:4], paths, strict=False) if p is not None
    ]
    start, files = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        files += len(read(paths))
    return {
        "files_per_s": round(files / (time.perf_counter() - start), 1),
        "refused": refused,
        "mean_levels": round(float(np.mean([each.mean() for each in apart])), 4) if apart else None,
        "most_levels": max((int(each.max()) for each in apart), default=None),
    }


if __name__ == "__main__":
    sys.exit(main())
