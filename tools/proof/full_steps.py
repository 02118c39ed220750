"""The steps of tools/full_size.py: teach the stand-in at upstream's size, and hold its engines against it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .results import Settings
from .steps import Step

UNITS = {"s": 1, "m": 60, "h": 3600}
PRECISIONS = ("fp16", "int8")
GRAPH = "full.uint8"  # GRAPHS/full.uint8.onnx; typed: full.uint8.int8.onnx


@dataclass(frozen=True)
class FullSettings(Settings):
    """What all steps are told.

    Attributes:
        size: Of the stand-in.
        train: How long it is taught, as `standin --train` takes it.
        batch: Pictures of a training step; None: what `standin` has for this machine.
        pictures: Unseen renders that everything is measured on.
        seed: Of those.
    """

    size: Literal["full", "small"] = "full"
    train: str = "10m"
    batch: int | None = None
    pictures: int = 256
    seed: int = 4711

    @property
    def seconds(self) -> float:
        """How long the network is taught."""
        return seconds_of(self.train)

    def words(self) -> list[str]:
        """As the options of the command that is a step."""
        words = [*super().words(), "--size", self.size, "--train", self.train]
        words += ["--pictures", str(self.pictures), "--seed", str(self.seed)]
        return words if self.batch is None else [*words, "--batch", str(self.batch)]

    def asked(self) -> dict[str, object]:
        """What must be the same for results in one folder to belong together."""
        return {
            "size": self.size,
            "train": self.train,
            "batch": self.batch,
            "pictures": self.pictures,
            "seed": self.seed,
            "largest": self.largest,
        }


def seconds_of(text: str) -> float:
    """`90s`, `10m`, `1.5h`.

    Raises:
        ValueError: It is no such time.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time; write for example 90s, 10m or 1h")
    return float(match[1]) * UNITS[match[2]]


def full_steps(settings: FullSettings) -> tuple[Step, ...]:
    """All of them, in order; `train` takes as long as it is told and what compiling and writing take."""
    teach = settings.seconds
    builds = tuple(f"build_{precision}" for precision in PRECISIONS)
    return (
        Step("machine_engine", "engine", "machine:engine_side", 5, 120),
        Step("train", "torch", "full_work:train", teach + 150, teach + 900),
        Step("own", "torch", "full_work:own", 60, 900, ("train",)),
        Step("export", "torch", "full_work:export", 25, 300, ("train",)),
        Step("reference", "torch", "full_work:reference", 40, 600, ("own",)),
        _typed("fp16", 5),
        _typed("int8", 120),
        _build("fp16", 90),
        _build("int8", 40),
        Step("compare", "engine", "full_work:compare", 60, 590, ("reference", *builds)),
        Step("weights", "torch", "full_work:weights", 5, 120, ("train",)),
    )


def _typed(precision: str, expected_s: float) -> Step:
    arguments = {"precision": precision}
    return Step(
        f"typed_{precision}", "torch", "full_work:typed", expected_s, 900, ("machine_engine", "export"), arguments
    )


def _build(precision: str, expected_s: float) -> Step:
    arguments: dict[str, object] = {
        "name": precision,
        "graph": f"{GRAPH}.{precision}",
        "precision": precision,
        "profiles": "large",
    }
    arguments["gate"] = False  # `compare` judges it, and a plan that fails is told of too
    return Step(f"build_{precision}", "engine", "build:run", expected_s, 600, (f"typed_{precision}",), arguments)
