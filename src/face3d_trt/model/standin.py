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
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from face3d_trt.errors import UsageError
from face3d_trt.faces.samples import sample_crops
from face3d_trt.files import sha256_file, storage_errors
from face3d_trt.model.load import CHECKPOINT, CONFIGURATION, LANDMARKS, MORPHABLE, STANDIN_KEY, TASK
from face3d_trt.model.network import Bottleneck, ReconNet
from face3d_trt.model.procedural import albedo, base_shape, disc, procedural_arrays
from face3d_trt.names import GROUPS
from face3d_trt.optional import require
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.model.morphable import MorphableArrays

FORMAT = 1  # raise when the same options give other files
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
# Scale of the residual branches of seeded weights. At 1 the random network is chaotic: it blows rounding up to 8 % in
# fp16 (norm of the error over norm of the variation between pictures); at 0.1 that is 0.4 %, as in trained networks.
BRANCH = 0.1
# Standard deviation of a coefficient over pictures, so that pictures differ as faces do.
SPREAD = {"identity": 0.7, "expression": 0.6, "texture": 0.7, "angle": 0.15, "lighting": 0.1, "translation": 0.05}


def write_standin(directory: Path, size: Size = "small", seed: int = 0, report: Reporter = SILENT) -> bool:
    """Write a stand-in with seeded random weights.

    Args:
        directory: The new model directory.
        size: `small` has a quarter of the width (1.6 M parameters, about 40 MB on disk); `full` has upstream's exact
            sizes (46.8 M parameters in three networks, 35,709 vertices, about 520 MB).
        seed: Of the weights.
        report: Told what is written.

    Returns:
        False if `directory` already holds exactly this stand-in, and was left alone.

    Raises:
        UsageError: Unknown size, or the directory holds something else.
        StorageError: The directory cannot be written; nothing is left of the attempt.
    """
    if size not in SIZES:
        raise UsageError(f"unknown size {size!r}", allowed=", ".join(SIZES), run="face3d-trt standin --help")
    if directory.exists():
        if _is_standin(directory, size, seed):
            report.stage(f"standin  {directory} is this stand-in already: reused")
            return False
        if not directory.is_dir() or (any(directory.iterdir()) and not _is_any_standin(directory)):
            raise UsageError(
                f"{directory} exists and is not a stand-in; it was left as it is",
                allowed="a new or empty directory, or a former stand-in",
                run="face3d-trt standin NEW_DIRECTORY",
            )
    with storage_errors(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            _write_files(beside, size, seed, report)
            beside.chmod(0o755)
            if directory.exists():
                shutil.rmtree(directory)
            beside.rename(directory)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return True


def _write_files(directory: Path, size: Size, seed: int, report: Reporter) -> None:
    sizes = SIZES[size]
    (directory / "assets").mkdir()
    report.stage(f"standin  morphable model: {sizes.vertices:,} vertices, procedural")
    arrays = procedural_arrays(sizes.vertices, sizes.boundary)
    write_assets(directory, arrays, sizes)
    report.stage(f"standin  network: ResNet50 of width {sizes.width}, seed {seed}")
    torch.save(checkpoint(sizes, seed), directory / CHECKPOINT)
    configuration = {
        "framework": "pytorch",
        "task": TASK,
        "model": {"type": "face_reconstruction"},
        "pipeline": {"type": "resnet50-face-reconstruction"},
        STANDIN_KEY: {
            "standin": size,
            "weights": "seeded",
            "seed": seed,
            "format": FORMAT,
            "sha256": {path: sha256_file(directory / path) for path in (CHECKPOINT, MORPHABLE, LANDMARKS)},
        },
    }
    (directory / CONFIGURATION).write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")


def _is_any_standin(directory: Path) -> bool:
    try:
        return STANDIN_KEY in json.loads((directory / CONFIGURATION).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _is_standin(directory: Path, size: Size, seed: int) -> bool:
    """Whether these files are, by content, the stand-in that would be written."""
    if not _is_any_standin(directory):
        return False
    facts = json.loads((directory / CONFIGURATION).read_text(encoding="utf-8"))[STANDIN_KEY]
    if [facts.get(key) for key in ("standin", "weights", "seed", "format")] != [size, "seeded", seed, FORMAT]:
        return False
    hashes = facts.get("sha256", {})
    return bool(hashes) and all(
        (directory / p).is_file() and sha256_file(directory / p) == h for p, h in hashes.items()
    )


def checkpoint(sizes: StandinSize, seed: int) -> dict[str, Any]:
    """The content of pytorch_model.pt: three state dicts and the displacement scales, as upstream saves them."""
    generator = torch.Generator().manual_seed(seed)
    network = seeded_network(sizes.width, generator)
    return {
        "net_recon": network.state_dict(),
        "mid_net": generator_state(6, 3, sizes.generator, generator),
        "high_net": generator_state(9, 1, sizes.generator, generator),
        "alpha": torch.ones(1),
        "beta": torch.ones(1),
    }


def seeded_network(width: int, generator: torch.Generator) -> ReconNet:
    """Random weights whose batch norms have seen real pictures, and whose coefficients differ between pictures."""
    network = ReconNet(width)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                fan_in = module.in_channels * module.kernel_size[0] * module.kernel_size[1]
                module.weight.normal_(0, (2 / fan_in) ** 0.5, generator=generator)
            elif isinstance(module, nn.BatchNorm2d):
                module.momentum = None  # None: plain average over the pictures
            if isinstance(module, Bottleneck):
                module.bn3.weight.fill_(BRANCH)
        pictures = varied_pictures()
        network.train()
        network(pictures)
        network.eval()
        scale_heads(network, pictures)
    return network


def varied_pictures() -> Tensor:
    """The sample faces, mirrored, darkened and washed out: (32, 3, 224, 224) float32 RGB 0..1."""
    faces = torch.from_numpy(sample_crops()).permute(0, 3, 1, 2).to(torch.float32) / 255
    return torch.cat([faces, faces.flip(3), faces * 0.6, 0.3 + faces.flip(3) * 0.7])


def scale_heads(network: ReconNet, pictures: Tensor) -> None:
    """Give every coefficient mean 0 and its group's standard deviation over the pictures."""
    coeffs = network(pictures)
    mean, deviation = coeffs.mean(0), coeffs.std(0).clamp(min=1e-6)
    target = torch.cat([torch.full((part.stop - part.start,), SPREAD[group]) for group, part in GROUPS.items()])
    factor, start = target / deviation, 0
    for head in network.final_layers:
        assert isinstance(head, nn.Conv2d)
        assert head.bias is not None
        part = slice(start, start + head.out_channels)
        head.weight.mul_(factor[part, None, None, None])
        head.bias.sub_(mean[part]).mul_(factor[part])
        start = part.stop


def generator_state(channels_in: int, channels_out: int, width: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Seeded state dict of a displacement network (`pix2pix/networks.py`, ResnetGenerator of nine blocks)."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.1": (width, channels_in, 7, 7),
        "model.4": (2 * width, width, 3, 3),
        "model.7": (4 * width, 2 * width, 3, 3),
        "model.19": (4 * width, 2 * width, 3, 3),  # transposed convolutions: (in, out, 3, 3)
        "model.22": (2 * width, width, 3, 3),
        "model.26": (channels_out, width, 7, 7),
    }
    for block in range(10, 19):
        for layer in (1, 6):
            shapes[f"model.{block}.conv_block.{layer}"] = (4 * width, 4 * width, 3, 3)
    state = {}
    for name, shape in shapes.items():
        state[f"{name}.weight"] = torch.randn(shape, generator=generator) * 0.02
        state[f"{name}.bias"] = torch.zeros(shape[1] if name in ("model.19", "model.22") else shape[0])
    return state


def write_assets(directory: Path, arrays: MorphableArrays, sizes: StandinSize) -> None:
    """The .mat, .npy and .obj files of upstream's `assets/`, 1-based where upstream counts from one."""
    io = require("scipy.io", "export", "writing .mat files")
    shape = arrays.mean_shape.reshape(-1, 3)
    content = {
        "meanshape": arrays.mean_shape[None],
        "idBase": arrays.identity_basis,
        "exBase": arrays.expression_basis,
        "meantex": arrays.mean_texture[None],
        "texBase": arrays.texture_basis,
        "tri": (arrays.triangles + 1).astype(np.float64),
        "point_buf": (arrays.vertex_triangles + 1).astype(np.float64),
        "keypoints": (arrays.keypoints + 1).astype(np.float64)[None],
    }
    io.savemat(directory / MORPHABLE, content)
    centred = shape.astype(np.float64) - shape.mean(axis=0, dtype=np.float64)
    io.savemat(directory / LANDMARKS, {"lm": centred[arrays.keypoints]})
    rng = np.random.default_rng(0)
    regressor = {"W1": (200, 10), "B1": (200, 1), "W2": (3, 200), "B2": (3, 1)}
    io.savemat(directory / "assets/BBRegressorParam_r.mat", {k: rng.normal(0, 0.1, s) for k, s in regressor.items()})
    uv = disc(sizes.vertices, sizes.boundary) / 2 + 0.5
    np.save(directory / "assets/bfm_uvs2.npy", uv.astype(np.float32))
    np.save(directory / "assets/bfm_tex_mean2.npy", uv_albedo(sizes.texture).astype(np.float32))
    np.save(directory / "assets/bfm_texmap_base2.npy", uv_basis(arrays.texture_basis, uv, sizes.texture))
    lines = [f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in shape]
    lines += [f"f {a} {b} {c}" for a, b, c in arrays.triangles + 1]
    (directory / "assets/template_bfm.obj").write_text("\n".join(lines) + "\n", encoding="ascii")


def _uv_grid(side: int) -> NDArray[np.float64]:
    """Pixel centres of a UV map as points of the disc: (side * side, 2), row 0 at v = 1."""
    axis = (np.arange(side) + 0.5) / side * 2 - 1
    u, v = np.meshgrid(axis, -axis)
    return np.stack([u.ravel(), v.ravel()], 1)


def uv_albedo(side: int) -> NDArray[np.float64]:
    """Mean colour over the UV map: (side * side * 3,) 0..255, black outside of the disc."""
    grid = _uv_grid(side)
    inside = np.linalg.norm(grid, axis=1) <= 1
    surface = base_shape(grid * np.minimum(1, 1 / np.maximum(np.linalg.norm(grid, axis=1), 1e-9))[:, None])
    colour: NDArray[np.float64] = albedo(surface[:, 0], surface[:, 1]) * inside[:, None]
    return colour.reshape(-1)


def uv_basis(basis: NDArray[np.float32], uv: NDArray[np.float64], side: int) -> NDArray[np.float32]:
    """The vertex texture basis (3V, 80) spread over the UV map by its nearest vertex: (side * side * 3, 80)."""
    from scipy.spatial import cKDTree

    grid = _uv_grid(side)
    nearest = cKDTree(uv * 2 - 1).query(grid)[1]
    inside = np.linalg.norm(grid, axis=1) <= 1
    spread = basis.reshape(-1, 3, basis.shape[1])[nearest] * inside[:, None, None].astype(np.float32)
    return np.ascontiguousarray(spread.reshape(-1, basis.shape[1]))
