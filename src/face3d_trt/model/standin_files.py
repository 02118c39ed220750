"""The files of a stand-in's directory besides the network: upstream's names, keys, shapes and 1-based indices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from face3d_trt.model.load import LANDMARKS, MORPHABLE
from face3d_trt.model.procedural import albedo, base_shape, disc
from face3d_trt.optional import require

if TYPE_CHECKING:
    from face3d_trt.model.morphable import MorphableArrays

REGRESSOR = "assets/BBRegressorParam_r.mat"
UVS = "assets/bfm_uvs2.npy"
UV_MEAN = "assets/bfm_tex_mean2.npy"
UV_BASIS = "assets/bfm_texmap_base2.npy"
TEMPLATE = "assets/template_bfm.obj"
ASSETS = (MORPHABLE, LANDMARKS, REGRESSOR, UVS, UV_MEAN, UV_BASIS, TEMPLATE)


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


def write_assets(directory: Path, arrays: MorphableArrays, vertices: int, boundary: int, texture: int) -> None:
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
    io.savemat(directory / REGRESSOR, {k: rng.normal(0, 0.1, s) for k, s in regressor.items()})
    uv = disc(vertices, boundary) / 2 + 0.5
    np.save(directory / UVS, uv.astype(np.float32))
    np.save(directory / UV_MEAN, uv_albedo(texture).astype(np.float32))
    np.save(directory / UV_BASIS, uv_basis(arrays.texture_basis, uv, texture))
    lines = [f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in shape]
    lines += [f"f {a} {b} {c}" for a, b, c in arrays.triangles + 1]
    (directory / TEMPLATE).write_text("\n".join(lines) + "\n", encoding="ascii")


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
