"""A model directory that holds nobody's data: upstream's files, keys and layout over the procedural morphable model.

Upstream's other files (`de_retouching_model.pth`, `large_base_net.pth`, the detector, `segment_face.pb`,
`face_alignment/`) belong to networks that this package does not use, and are not written.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from face3d_trt.errors import UsageError
from face3d_trt.files import sha256_file, storage_errors
from face3d_trt.model.learned import TAUGHT, shipped_sha256, shipped_weights, teach
from face3d_trt.model.load import CHECKPOINT, CONFIGURATION, LANDMARKS, MORPHABLE, STANDIN_KEY, TASK
from face3d_trt.model.procedural import procedural_arrays
from face3d_trt.model.seeded import seeded_network
from face3d_trt.model.standin_files import ASSETS, generator_state, write_assets
from face3d_trt.report import SILENT, Reporter

FORMAT = 2  # raise when the same options give other files
FILES = {CONFIGURATION, CHECKPOINT, *ASSETS, *TAUGHT}  # all that a stand-in's directory may hold
Size = Literal["small", "full"]


@dataclass(frozen=True)
class StandinSize:
    """Sizes of a stand-in.

    Attributes:
        width: Channels of the network's first convolution.
        vertices: V of the mesh.
        boundary: Vertices on the mesh's rim; F = 2 V - 2 - boundary.
        texture: Side of the UV texture in pixels.
        generator: Channels of the two displacement networks' first convolution.
    """

    width: int
    vertices: int
    boundary: int
    texture: int
    generator: int


SIZES: dict[str, StandinSize] = {
    "small": StandinSize(width=16, vertices=6000, boundary=250, texture=64, generator=8),
    "full": StandinSize(width=64, vertices=35709, boundary=627, texture=512, generator=64),  # 70,789 triangles
}


@dataclass(frozen=True)
class StandinOptions:
    """Which stand-in.

    Attributes:
        size: `small` has a quarter of the width (1.6 M parameters, about 30 MB on disk); `full` has upstream's exact
            sizes (46.8 M parameters in three networks, 35,709 vertices, about 520 MB).
        seeded: Random weights, which have learned nothing. Without it `small` has the weights that ship; `full` is
            seeded unless it is taught.
        train_seconds: Teach the network now, for so long, on a GPU if there is one.
        batch: Pictures of a training step; None: what suits the machine.
        seed: Of random weights, and of teaching.
    """

    size: Size = "small"
    seeded: bool = False
    train_seconds: float | None = None
    batch: int | None = None
    seed: int = 0

    @property
    def weights(self) -> Literal["seeded", "learned"]:
        """What the network's weights will be."""
        taught = self.train_seconds is not None or self.size == "small"
        return "learned" if taught and not self.seeded else "seeded"

    def key(self) -> list[object]:
        """What decides the files' content; weights that ship have no seed."""
        shipped = self.weights == "learned" and self.train_seconds is None
        source = shipped_sha256() if shipped else self.seed
        return [self.size, self.weights, self.train_seconds, self.batch, source, FORMAT]


def write_standin(directory: Path, options: StandinOptions | None = None, report: Reporter = SILENT) -> bool:
    """Write a stand-in.

    Args:
        directory: The new model directory.
        options: Which one; None: the small one with the weights that ship.
        report: Told what is written.

    Returns:
        False if `directory` already holds exactly this stand-in, and was left alone.

    Raises:
        UsageError: Options that exclude each other, or the directory holds something else.
        StorageError: The directory cannot be written; nothing is left of the attempt.
    """
    options = options or StandinOptions()
    _check(options)
    directory = directory.resolve()  # `.` and links have no name of their own to rename to
    if directory.exists():
        if _is_standin(directory, options):
            report.stage(f"standin  {directory} is this stand-in already: reused")
            return False
        _refuse_foreign_files(directory)
    with storage_errors(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            _write_files(beside / "new", options, directory.with_name(f"{directory.name}.training.pt"), report)
            if directory.exists():
                directory.rename(beside / "former")
            (beside / "new").rename(directory)
        finally:
            if (beside / "former").exists() and not directory.exists():
                (beside / "former").rename(directory)
            shutil.rmtree(beside, ignore_errors=True)
    return True


def _refuse_foreign_files(directory: Path) -> None:
    """Only what a stand-in consists of may be replaced."""
    found = [p for p in directory.rglob("*") if not p.is_dir()] if directory.is_dir() else [directory]
    foreign = sorted(str(p) for p in found if str(p.relative_to(directory)) not in FILES)
    if foreign or (found and not _is_any_standin(directory)):
        what = f"it holds {foreign[0]}" if foreign else "it is another model"
        raise UsageError(
            f"{directory} is not a stand-in that may be replaced: {what}; it was left as it is",
            allowed="a new or empty directory, or a former stand-in with nothing else in it",
            run="face3d-trt standin NEW_DIRECTORY",
        )


def _check(options: StandinOptions) -> None:
    if options.size not in SIZES:
        raise UsageError(f"unknown size {options.size!r}", allowed=", ".join(SIZES), run="face3d-trt standin --help")
    if options.seeded and options.train_seconds is not None:
        raise UsageError("seeded weights are those of a network that was not taught", allowed="--seeded or --train")
    if options.train_seconds is not None and options.train_seconds <= 0:
        raise UsageError(f"cannot train for {options.train_seconds} s", allowed="a time above zero, such as 10m")


def _write_files(directory: Path, options: StandinOptions, training: Path, report: Reporter) -> None:
    sizes = SIZES[options.size]
    (directory / "assets").mkdir(parents=True)
    report.stage(f"standin  morphable model: {sizes.vertices:,} vertices, procedural")
    arrays = procedural_arrays(sizes.vertices, sizes.boundary)
    write_assets(directory, arrays, sizes.vertices, sizes.boundary, sizes.texture)
    weights = options.weights if options.train_seconds is None else f"to be taught for {options.train_seconds:.0f} s"
    report.stage(f"standin  network: ResNet50 of width {sizes.width}, weights: {weights}")
    generator = torch.Generator().manual_seed(options.seed)
    if options.train_seconds is not None:
        state = teach(
            sizes.width, arrays, options.train_seconds, options.seed, options.batch, training, directory, report
        )
    elif options.weights == "learned":
        state = shipped_weights()
    else:
        state = seeded_network(sizes.width, generator).state_dict()
    torch.save(_checkpoint(state, sizes, generator), directory / CHECKPOINT)
    configuration = {
        "framework": "pytorch",
        "task": TASK,
        "model": {"type": "face_reconstruction"},
        "pipeline": {"type": "resnet50-face-reconstruction"},
        STANDIN_KEY: {
            "standin": options.size,
            "weights": options.weights,
            "key": options.key(),
            "sha256": {path: sha256_file(directory / path) for path in (CHECKPOINT, MORPHABLE, LANDMARKS)},
        },
    }
    (directory / CONFIGURATION).write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")


def _checkpoint(state: dict[str, Any], sizes: StandinSize, generator: torch.Generator) -> dict[str, Any]:
    """The content of pytorch_model.pt: three state dicts and the displacement scales, as upstream saves them."""
    return {
        "net_recon": state,
        "mid_net": generator_state(6, 3, sizes.generator, generator),
        "high_net": generator_state(9, 1, sizes.generator, generator),
        "alpha": torch.ones(1),
        "beta": torch.ones(1),
    }


def _is_any_standin(directory: Path) -> bool:
    try:
        return STANDIN_KEY in json.loads((directory / CONFIGURATION).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _is_standin(directory: Path, options: StandinOptions) -> bool:
    """Whether these files are, by content, the stand-in that would be written."""
    if not _is_any_standin(directory):
        return False
    facts = json.loads((directory / CONFIGURATION).read_text(encoding="utf-8"))[STANDIN_KEY]
    hashes = facts.get("sha256", {})
    return (
        facts.get("key") == options.key()
        and bool(hashes)
        and all((directory / p).is_file() and sha256_file(directory / p) == h for p, h in hashes.items())
    )
