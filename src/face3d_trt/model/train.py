"""Teaches a stand-in's network to read faces from renders of its own morphable model.

Every step draws fresh pictures whose coefficients are known; nothing is stored, and no picture is seen twice. The
pictures of step n depend on the seed and n alone, so that an interrupted run goes on as if nothing had happened.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from face3d_trt.files import write_beside
from face3d_trt.model.morphable import MorphableModel
from face3d_trt.model.network import ReconNet
from face3d_trt.model.procedural import NAMED
from face3d_trt.model.random_faces import random_photographs
from face3d_trt.model.render import Renderer
from face3d_trt.names import GROUPS
from face3d_trt.report import SILENT, Reporter

TEST_SEED = 1_000_003  # test pictures; training uses seed * STEP_STRIDE + step, far below
STEP_STRIDE = 1_000_000_000
SAVE_EVERY_S = 60.0
AVERAGE_FROM = 0.5  # share of the time after which weights are averaged; before it they change too fast
AVERAGE_DECAY = 0.998
# Weight of a group's leading components and of the rest, in units of the coefficient's own variance. What moves every
# vertex weighs most; a component that changes one small region by a fraction of a millimetre weighs little.
LOSS_WEIGHTS = {
    "identity": (1.0, 0.1),
    "expression": (1.0, 0.1),
    "texture": (1.0, 0.1),
    "angle": (6.0, 6.0),
    "lighting": (1.0, 0.3),
    "translation": (6.0, 6.0),
}


@dataclass(frozen=True)
class TrainOptions:
    """How a network is taught.

    Attributes:
        seconds: Time to train, without start-up; the learning rate falls over this time.
        batch: Pictures of a step.
        learning_rate: Peak of the cosine schedule of AdamW.
        weight_decay: Of AdamW, on convolution weights only.
        seed: Of the weights and of the pictures.
        checkpoint: File to save to every minute, and to go on from; None: neither.
    """

    seconds: float
    batch: int = 512
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    seed: int = 0
    checkpoint: Path | None = None


@dataclass
class Progress:
    """State of a run besides the weights."""

    step: int = 0
    elapsed: float = 0.0
    curve: list[tuple[int, float]] = field(default_factory=list)  # (pictures seen, loss)


def train(
    network: ReconNet, morphable: MorphableModel, options: TrainOptions, report: Reporter = SILENT
) -> tuple[ReconNet, Progress]:
    """Teach `network`, on a GPU if there is one.

    Returns:
        The network with averaged weights on the CPU, in evaluation mode, and the loss curve.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(options.seed)
    renderer = Renderer(morphable).to(device)
    network = network.to(device, memory_format=torch.channels_last).train()
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(AVERAGE_DECAY), use_buffers=True)
    forward, draw = _compiled(network, renderer, device)
    optimizer = torch.optim.AdamW(
        _parameter_groups(network, options.weight_decay), lr=options.learning_rate, fused=True
    )
    scale = loss_scale(device)
    progress = Progress()
    if options.checkpoint is not None and options.checkpoint.exists():
        progress = _restore(options, network, average, optimizer)
        report.stage(f"train    goes on after {progress.elapsed:.0f} s, step {progress.step}")
    look_every = 20 if device.type == "cuda" else 1  # reading the loss waits for the GPU
    last_save = last_look = time.monotonic()
    first = progress.step + 1
    running = torch.zeros((), device=device)
    since = 0
    while progress.elapsed < options.seconds:
        _set_rate(optimizer, options.learning_rate * schedule(progress.elapsed / options.seconds))
        generator = torch.Generator(device).manual_seed(options.seed * STEP_STRIDE + STEP_STRIDE + progress.step)
        with torch.no_grad():
            pictures, coeffs = random_photographs(draw, options.batch, generator)
        loss = train_step(forward, optimizer, pictures, coeffs, scale)
        if progress.elapsed > AVERAGE_FROM * options.seconds:
            average.update_parameters(network)
        running += loss
        since += 1
        progress.step += 1
        if progress.step == first:  # the first step compiles
            float(loss)
            last_look = time.monotonic()
        if progress.step % look_every == 0:
            progress.curve.append((progress.step * options.batch, float(running) / since))
            running.zero_()
            now, since = time.monotonic(), 0
            progress.elapsed += now - last_look
            last_look = now
            report.progress(
                f"train    loss {progress.curve[-1][1]:.3f}", int(progress.elapsed), math.ceil(options.seconds)
            )
            if options.checkpoint is not None and now - last_save > SAVE_EVERY_S:
                _save(options, network, average, optimizer, progress)
                last_save = now
    if options.checkpoint is not None:
        _save(options, network, average, optimizer, progress)
    taught = average.module
    assert isinstance(taught, ReconNet)
    return taught.to("cpu", memory_format=torch.contiguous_format).eval(), progress


def _compiled(network: ReconNet, renderer: Renderer, device: torch.device) -> tuple[nn.Module, nn.Module]:
    """Network and renderer through torch.compile on a GPU, where it triples the speed; as they are on a CPU."""
    if device.type != "cuda":
        return network, renderer
    return cast("nn.Module", torch.compile(network)), cast("nn.Module", torch.compile(renderer))


def train_step(
    network: nn.Module, optimizer: torch.optim.Optimizer, pictures: Tensor, coeffs: Tensor, scale: Tensor
) -> Tensor:
    """One step of weighted least squares; returns the loss, not yet read from the GPU."""
    with torch.autocast(pictures.device.type, torch.bfloat16):
        found = network(pictures.contiguous(memory_format=torch.channels_last))
    loss = ((found.float() - coeffs).square() * scale).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
    optimizer.step()
    return loss.detach()


def loss_scale(device: torch.device) -> Tensor:
    """Weight of every coefficient's squared error: its group's weight over its variance, (257,)."""
    from face3d_trt.model.random_faces import random_coeffs

    variance = random_coeffs(20_000, torch.Generator().manual_seed(TEST_SEED + 1)).var(0)
    weight = torch.empty(len(variance))
    for group, part in GROUPS.items():
        leading, rest = LOSS_WEIGHTS[group]
        rank = torch.arange(part.stop - part.start)
        named = rank % 9 < 4 if group == "lighting" else rank < NAMED  # of each channel's nine: ambient and first band
        weight[part] = torch.where(named, leading, rest)
    return (weight / variance).to(device)


def schedule(done: float) -> float:
    """Share of the peak learning rate: a short linear rise, then half a cosine."""
    rise = 0.03
    return done / rise + 1e-3 if done < rise else 0.5 * (1 + math.cos(math.pi * min(1.0, (done - rise) / (1 - rise))))


def _parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _save(options: TrainOptions, network: nn.Module, average: nn.Module, optimizer: Any, progress: Progress) -> None:
    assert options.checkpoint is not None
    state = {
        "network": network.state_dict(),
        "average": average.state_dict(),
        "optimizer": optimizer.state_dict(),
        "progress": asdict(progress),
    }
    with write_beside(options.checkpoint) as temporary:
        torch.save(state, temporary)


def _restore(options: TrainOptions, network: nn.Module, average: nn.Module, optimizer: Any) -> Progress:
    assert options.checkpoint is not None
    state = torch.load(options.checkpoint, weights_only=True)
    network.load_state_dict(state["network"])
    average.load_state_dict(state["average"])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(**state["progress"])
