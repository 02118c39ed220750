"""What the process that leads a run and its children say to each other. Pixels never travel: they lie in bays."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from face3d_trt.errors import Face3DError
    from face3d_trt.reconstruct.products import ProductOptions
    from face3d_trt.reconstruct.shared import Layout
    from face3d_trt.reconstruct.sources import Item
    from face3d_trt.reconstruct.stages import Sizes

Shape = tuple[int, int]  # height, width
Run = tuple[int, int, Shape]  # crops `start` to `stop` of a bay have one size


@dataclass(frozen=True)
class Setup:
    """What a worker has to know before its first task.

    Attributes:
        bays: How many, and how they are laid out.
        template: (5, 3), of the model.
        sizes: Of crops that the engine takes beside 224×224; empty where photos are searched for faces.
        face: File of the morphable model; None where only coefficients are saved.
        checkpoint_sha256: Of the model.
    """

    bays: tuple[int, Layout]
    output: Path
    detector: str
    landmarks: Path | None
    faces: Literal["largest", "all"]
    products: ProductOptions
    keeps_photos: bool
    template: tuple[tuple[float, float, float], ...]
    sizes: Sizes
    face: Path | None
    checkpoint_sha256: str

    @property
    def crops_alone(self) -> bool:
        """Whether neither OpenCV nor a morphable model is needed."""
        return self.detector == "aligned" and not self.keeps_photos


@dataclass(frozen=True)
class Task:
    """A group of pictures for a worker.

    Attributes:
        kind: "frame": decode a frame of a video. "photo": decode a photo on a GPU. "prepare": decode, detect, align.
            "finish": products, write.
        group: Its number.
        bay: Where its pixels are, or are to be.
        items: The pictures.
        dead: Indices of those that killed a worker.
        photo: Height, width and scale of a photo that lies in the bay already.
        found: For "finish": what "prepare" found.
    """

    kind: Literal["frame", "photo", "prepare", "finish"]
    group: int
    bay: int
    items: tuple[Item, ...]
    dead: frozenset[int] = frozenset()
    photo: tuple[int, int, float] | None = None
    found: bytes = b""


@dataclass(frozen=True)
class Answer:
    """What became of a Task.

    Attributes:
        group: Of the task.
        kind: Of the task.
        runs: Crops that are to go to the engine.
        found: For "finish", opaque to the leader.
        lines: For the list of results, one for each item.
        counts: Pictures by outcome.
        photo: See Task; None after "frame": the video has ended; after "photo": it is for a worker.
        seconds: By stage.
        failures: Names and reasons, for the log.
    """

    group: int
    kind: Literal["frame", "photo", "prepare", "finish"]
    runs: tuple[Run, ...] = ()
    found: bytes = b""
    lines: bytes = b""
    counts: dict[str, int] = field(default_factory=dict)
    photo: tuple[int, int, float] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    failures: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Broken:
    """A worker, or an engine, that cannot go on, and why."""

    error: Face3DError


@dataclass(frozen=True)
class Ready:
    """An engine that is open.

    Attributes:
        sizes: Of crops that it takes.
        batch: The least and the most rows that it takes at a time.
        depth: Batches that it takes before the first is done.
        padded: Whether batches are filled up to the full size: TensorRT's result for a picture may depend on the size
            of its batch in the last bits, and is not to depend on what else came along.
    """

    backend: str
    template: tuple[tuple[float, float, float], ...]
    checkpoint_sha256: str
    weights: str
    sizes: Sizes
    batch: tuple[int, int]
    depth: int
    padded: bool


@dataclass(frozen=True)
class Batch:
    """Crops for an engine.

    Attributes:
        ticket: Its number.
        parts: (bay, start, stop).
        shape: Of each crop.
        rows: How many the engine is to be given; those beyond the parts are black.
    """

    ticket: int
    parts: tuple[tuple[int, int, int], ...]
    shape: Shape
    rows: int


@dataclass(frozen=True)
class Inferred:
    """A Batch whose coefficients lie in their bays; or what went wrong.

    Attributes:
        ticket: Of the batch.
        busy_s: That the engine had something to do since the last one.
        problem: "" or what went wrong.
        memory: Whether memory was short.
    """

    ticket: int
    busy_s: float = 0.0
    problem: str = ""
    memory: bool = False
