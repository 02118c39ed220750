"""Teaches the small stand-in on a GPU and writes what the package ships: weights in fp16, quality, loss curve.

usage: python tools/train_standin.py --seconds 420 --seed 0 --out DIR
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from lines import Lines

from face3d_trt.model.morphable import MorphableModel
from face3d_trt.model.network import ReconNet
from face3d_trt.model.procedural import procedural_arrays
from face3d_trt.model.quality import measure_quality
from face3d_trt.model.train import TEST_SEED, TrainOptions, train

TEST_PICTURES = 1024


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--vertices", type=int, default=6000)
    parser.add_argument("--boundary", type=int, default=250)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    morphable = MorphableModel(procedural_arrays(options.vertices, options.boundary))
    torch.manual_seed(options.seed)
    start = time.monotonic()
    network, progress = train(
        ReconNet(options.width),
        morphable,
        TrainOptions(options.seconds, batch=options.batch, learning_rate=options.rate, seed=options.seed),
        Lines(),
    )
    pictures = progress.step * options.batch
    total = time.monotonic() - start
    print(f"{progress.step} steps, {pictures:,} pictures in {progress.elapsed:.0f} s (with compiling: {total:.0f} s)")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    quality = measure_quality(network.to(device), morphable.to(device), TEST_PICTURES, TEST_SEED)
    half = {k: v.half() if v.is_floating_point() else v for k, v in network.cpu().state_dict().items()}
    torch.save(half, options.out / "network.pt")
    facts = {
        "quality": asdict(quality),
        "options": vars(options) | {"out": ""},
        "pictures": pictures,
        "curve": progress.curve,
    }
    (options.out / "training.json").write_text(json.dumps(facts, indent=1))
    (options.out / "table.md").write_text(quality.table())
    print(quality.table())
    print({k: [round(x, 2) for x in v] for k, v in quality.leading.items()})


if __name__ == "__main__":
    sys.exit(main())
