"""Teaches a stand-in's network to read faces from renders of its own morphable model.

Every step draws fresh pictures whose coefficients are known; nothing is stored, and no picture is seen twice. The
pictures of step n depend on the seed and n alone, so that an interrupted run goes on as if nothing had happened.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.files import write_beside
from face3d_trt.model.network import ReconNet
from face3d_trt.model.procedural import NAMED
from face3d_trt.model.random_faces import random_photographs
from face3d_trt.model.render import Renderer
from face3d_trt.names import GROUPS
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.model.morphable import MorphableModel

TEST_SEED = 1_000_003  # test pictures; training uses (seed + 1) * STEP_STRIDE + step, far above
STEP_STRIDE = 1_000_000_000
SAVE_EVERY_S = 60.0
# Peak learning rate at the small stand-in's width. A step of Adam changes a layer's output in proportion to the number
# of its inputs, so a wider network wants a lower rate: Yang et al. 2022, "Tensor Programs V".
RATE, RATE_WIDTH = 3e-3, 16
LAYOUT = torch.channels_last  # what the GPU's convolutions want
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
        batch: Pictures of a step; None: 512 on a GPU, 16 on a CPU.
        learning_rate: Peak of the cosine schedule of AdamW; None: what suits the network's width.
        weight_decay: Of AdamW, on convolution weights only.
        seed: Of the weights and of the pictures.
        checkpoint: File to save to every minute, and to go on from; None: neither.
    """

    seconds: float
    batch: int | None = None
    learning_rate: float | None = None
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

    Raises:
        UsageError: The checkpoint is of a run with other options.
        MissingError: A step's pictures do not fit into the GPU's memory.
    """
    run = _Run(network, morphable, options)
    if run.device.type == "cpu":
        report.warn("no GPU: a CPU sees a few dozen pictures a second, where a useful network wants a million and more")
    if options.checkpoint is not None and options.checkpoint.exists():
        run.restore(options.checkpoint)
        report.stage(f"train    goes on after {run.progress.elapsed:.0f} s, step {run.progress.step}")
    try:
        run.until_done(report)
    except KeyboardInterrupt:
        if options.checkpoint is not None:
            run.save(options.checkpoint)
            report.warn(f"training is kept in {options.checkpoint}; the same command goes on from there")
        raise
    except torch.cuda.OutOfMemoryError as error:
        raise MissingError(
            f"{run.batch} pictures a step do not fit into this GPU's memory",
            allowed="fewer pictures a step, or a GPU with more memory",
            run=f"face3d-trt standin --train ... --batch {run.batch // 2}",
        ) from error
    if options.checkpoint is not None:
        run.save(options.checkpoint)
    return run.result(), run.progress


class _Run:
    """A network, what teaches it, and how far that has come."""

    def __init__(self, network: ReconNet, morphable: MorphableModel, options: TrainOptions) -> None:
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.batch = options.batch or (512 if self.device.type == "cuda" else 16)
        self.network = network.to(self.device).train()
        for parameter in self.network.parameters():
            parameter.data = parameter.data.contiguous(memory_format=LAYOUT) if parameter.ndim == 4 else parameter.data
        self.average = AveragedModel(self.network, multi_avg_fn=_average(), use_buffers=True)
        self.forward, self.draw = _compiled(self.network, Renderer(morphable).to(self.device), self.device)
        groups = _parameter_groups(self.network, options.weight_decay)
        self.rate = RATE * RATE_WIDTH / network.width if options.learning_rate is None else options.learning_rate
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate, fused=True)
        self.scale = loss_scale(self.device)
        self.progress = Progress()

    def until_done(self, report: Reporter) -> None:
        """Step until the time is over; the first step, which compiles, does not count."""
        seconds, checkpoint = self.options.seconds, self.options.checkpoint
        look_every = 20 if self.device.type == "cuda" else 1  # reading the loss waits for the GPU
        losses: list[Tensor] = []
        looked = saved = 0.0
        while self.progress.elapsed < seconds:
            losses.append(self.step())
            if not looked:
                float(losses[0])
                looked = saved = time.monotonic()
            if len(losses) < look_every:
                continue
            loss = float(torch.stack(losses).mean())
            losses.clear()
            now = time.monotonic()
            self.progress.elapsed += now - looked
            looked = now
            self.progress.curve.append((self.progress.step * self.batch, loss))
            elapsed = min(int(self.progress.elapsed), int(seconds))
            report.progress(f"train    loss {loss:.3f}", elapsed, math.ceil(seconds))
            if checkpoint is not None and now - saved > SAVE_EVERY_S:
                self.save(checkpoint)
                saved = now

    def step(self) -> Tensor:
        """One step on fresh pictures; the loss, not yet read from the GPU."""
        done = self.progress.elapsed / self.options.seconds
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * schedule(done)
        generator = torch.Generator(self.device)
        generator.manual_seed((self.options.seed + 1) * STEP_STRIDE + self.progress.step)
        with torch.no_grad():
            pictures, coeffs = random_photographs(self.draw, self.batch, generator)
        loss = train_step(self.forward, self.optimizer, pictures, coeffs, self.scale)
        if done > AVERAGE_FROM:
            self.average.update_parameters(self.network)
        self.progress.step += 1
        return loss

    def result(self) -> ReconNet:
        """The averaged network on the CPU."""
        if not self.average.n_averaged:
            self.average.update_parameters(self.network)
        taught = ReconNet(self.network.width)
        taught.load_state_dict(self.average.module.state_dict())
        return taught.eval()

    def key(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        return {k: v for k, v in asdict(self.options).items() if k not in ("checkpoint", "batch")} | {
            "batch": self.batch,
            "learning_rate": self.rate,
            "width": self.network.width,
        }

    def save(self, path: Path) -> None:
        """Write everything that the run needs to go on."""
        state = {
            "key": self.key(),
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progress": asdict(self.progress),
        }
        with write_beside(path) as temporary:
            torch.save(state, temporary)

    def restore(self, path: Path) -> None:
        """Go on from a saved run of the same options."""
        state = torch.load(path, weights_only=True)
        if state["key"] != self.key():
            raise UsageError(
                f"{path} is an interrupted run with other options: {state['key']}",
                allowed=f"{self.key()}",
                run=f"rm {path}    # to begin anew",
            )
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])


def _average() -> Callable[..., None]:
    return cast("Callable[..., None]", get_ema_multi_avg_fn(AVERAGE_DECAY))  # type: ignore[no-untyped-call]  # torch's


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
        found = network(pictures.contiguous(memory_format=LAYOUT))
    loss = ((found.float() - coeffs).square() * scale).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
    optimizer.step()
    return cast("Tensor", loss.detach())


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
