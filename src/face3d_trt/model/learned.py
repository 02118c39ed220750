"""Weights that have learned: those that ship with the package, and those of a network taught here."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from face3d_trt.files import sha256_file
from face3d_trt.model.morphable import MorphableModel
from face3d_trt.model.network import ReconNet
from face3d_trt.model.quality import measure_quality
from face3d_trt.model.train import TEST_SEED, Progress, TrainOptions, train
from face3d_trt.optional import require

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.model.morphable import MorphableArrays
    from face3d_trt.report import Reporter

SHIPPED = "standin_small.pt"  # fp16; see MODEL_CARD.md beside it
TEST_PICTURES = 1024
TAUGHT = ("training.json", "quality.md", "loss.svg")  # what teaching leaves in a model directory


def shipped_weights() -> dict[str, Tensor]:
    """State dict of the small stand-in's network as it ships, float32."""
    with as_file(files("face3d_trt.model") / "data" / SHIPPED) as path:
        state = torch.load(path, map_location="cpu", weights_only=True)
    return {key: value.float() if value.is_floating_point() else value for key, value in state.items()}


def shipped_sha256() -> str:
    """SHA-256 of the weights that ship."""
    with as_file(files("face3d_trt.model") / "data" / SHIPPED) as path:
        return sha256_file(path)


def teach(
    width: int,
    arrays: MorphableArrays,
    seconds: float,
    seed: int,
    batch: int | None,
    checkpoint: Path,
    directory: Path,
    report: Reporter,
) -> dict[str, Any]:
    """Teach a network of this width on renders of this morphable model; write quality and loss curve to `directory`.

    Args:
        width: Of the network.
        arrays: The morphable model.
        seconds: Time to train.
        seed: Of weights and pictures.
        batch: Pictures of a step, see `TrainOptions`.
        checkpoint: Where the run is saved every minute; an interrupted run of the same options goes on from it, and a
            finished one removes it.
        directory: Gets `training.json`, `quality.md` and `loss.svg`.
        report: Told of progress.

    Returns:
        The network's state dict.

    Raises:
        MissingError: matplotlib, which draws the loss curve, is not installed.
    """
    require("matplotlib", "train", "the loss curve of --train")
    morphable = MorphableModel(arrays)
    torch.manual_seed(seed)
    options = TrainOptions(seconds, batch=batch, seed=seed, checkpoint=checkpoint)
    network, progress = train(ReconNet(width), morphable, options, report)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    report.stage(f"standin  quality on {TEST_PICTURES:,} renders that training has not seen")
    quality = measure_quality(network.to(device), morphable.to(device), TEST_PICTURES, TEST_SEED)
    report.stage(quality.table())
    facts = {"quality": asdict(quality), "seconds": seconds, "seed": seed, "curve": progress.curve}
    (directory / TAUGHT[0]).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (directory / TAUGHT[1]).write_text(quality.table(), encoding="utf-8")
    draw_loss(progress, directory / TAUGHT[2])
    checkpoint.unlink(missing_ok=True)
    return network.cpu().state_dict()


def draw_loss(progress: Progress, path: Path) -> None:
    """The loss over the pictures seen, as an SVG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot([pictures / 1e6 for pictures, _ in progress.curve], [loss for _, loss in progress.curve], linewidth=0.8)
    axes.set(xlabel="pictures seen, millions", ylabel="weighted squared error", yscale="log")
    axes.grid(alpha=0.3)
    figure.savefig(path)
