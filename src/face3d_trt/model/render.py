"""Coefficients to pictures: a z-buffer of dense surface points, lit by spherical harmonics. torch only, CPU and GPU.

The surface is sampled at fixed barycentric points, so that a picture is a gather, a matrix product and one scatter; no
rasteriser extension is needed. Light: Ramamoorthi and Hanrahan 2001, three bands, in upstream's normalisation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from face3d_trt.decode import AMBIENT, BANDS, CAMERA_Z, SCALES
from face3d_trt.model.morphable import MorphableModel, project, rotation
from face3d_trt.names import CROP, GROUPS

SUBPIXELS = 2  # per pixel and axis
DEPTH_STEPS = 1e4  # per unit of 100 mm
NOTHING = torch.iinfo(torch.int64).max  # sort key of a subpixel without a surface


def harmonics(normals: Tensor) -> Tensor:
    """The nine basis functions at unit normals: (..., 3) -> (..., 9)."""
    x, y, z = normals.unbind(-1)
    first, second, third = (a * c for a, c in zip(BANDS, SCALES, strict=True))
    return torch.stack(
        [
            torch.full_like(x, first),
            -second * y,
            second * z,
            -second * x,
            third * x * y,
            -third * y * z,
            third / (2 * math.sqrt(3)) * (3 * z * z - 1),
            -third * x * z,
            third / 2 * (x * x - y * y),
        ],
        -1,
    )


def shade(albedo: Tensor, normals: Tensor, lighting: Tensor) -> Tensor:
    """Colour under light: albedo and normals (batch, V, 3), lighting (batch, 27) -> (batch, V, 3), not clamped."""
    gamma = lighting.reshape(-1, 3, 9)
    ambient = torch.zeros(9, device=gamma.device, dtype=gamma.dtype)
    ambient[0] = AMBIENT
    return albedo * (harmonics(normals) @ (gamma + ambient).transpose(1, 2))


class Renderer(nn.Module):
    """Draws faces into square crops of 224 px.

    Args:
        morphable: The model whose coefficients are drawn.
        density: Surface points per triangle edge; more for coarser meshes. Chosen so that points lie closer than
            subpixels.
    """

    corners: Tensor
    weights: Tensor

    def __init__(self, morphable: MorphableModel, density: int | None = None) -> None:
        super().__init__()
        self.morphable = morphable
        triangles = morphable.triangles
        if density is None:
            per_triangle = 1e5 * SUBPIXELS**2 / len(triangles)  # a face covers 30,000 pixels, and overlaps itself
            density = max(1, math.ceil(math.sqrt(2 * per_triangle)) - 1)
        grid = [((i + 1 / 3) / density, (j + 1 / 3) / density) for i in range(density) for j in range(density - i)]
        u, v = torch.tensor(grid).unbind(1)
        self.register_buffer("weights", torch.stack([1 - u - v, u, v], 1).clamp(min=0), persistent=False)
        self.register_buffer("corners", triangles, persistent=False)

    def normals(self, shape: Tensor) -> Tensor:
        """Unit vertex normals of (batch, V, 3) shapes, pointing outwards."""
        a, b, c = (shape[:, self.corners[:, i]] for i in range(3))
        flat = torch.linalg.cross(b - a, c - a)
        total = torch.zeros_like(shape)
        for i in range(3):
            total.index_add_(1, self.corners[:, i], flat)
        return functional.normalize(total, dim=-1)

    def colours(self, coeffs: Tensor) -> tuple[Tensor, Tensor]:
        """Posed vertices and their lit colours, (batch, V, 3) each, the colour clamped to 0..1."""
        shape = self.morphable.shape(coeffs)
        turn = rotation(coeffs[:, GROUPS["angle"]]).transpose(1, 2)
        vertex = shape @ turn + coeffs[:, GROUPS["translation"]].unsqueeze(1)
        normals = self.normals(shape) @ turn
        return vertex, shade(self.morphable.albedo(coeffs), normals, coeffs[:, GROUPS["lighting"]]).clamp(0, 1)

    def forward(self, coeffs: Tensor, background: Tensor | None = None) -> Tensor:
        """Pictures of coefficients: (batch, 257) -> (batch, 3, 224, 224) RGB 0..1.

        Args:
            coeffs: Coefficients.
            background: (batch, 3, 224, 224); black if None.
        """
        picture, cover = self.draw(*self.colours(coeffs))
        return picture if background is None else picture + (1 - cover) * background

    def draw(self, vertex: Tensor, colour: Tensor) -> tuple[Tensor, Tensor]:
        """Any colours on posed vertices: premultiplied picture (batch, 3, 224, 224) and cover (batch, 1, 224, 224)."""
        batch, side = len(vertex), CROP * SUBPIXELS
        cell, key = self.surface(vertex)
        nearest = torch.full((batch, side * side + 1), NOTHING, device=vertex.device)
        nearest = nearest.scatter_reduce(1, cell, key, "amin")[:, :-1]
        hit = nearest < NOTHING
        winner = torch.where(hit, nearest % cell.shape[1], 0)
        drawn = self.colour_at(colour, winner) * hit.unsqueeze(-1)
        fine = torch.cat([drawn, hit.unsqueeze(-1).to(drawn.dtype)], -1).transpose(1, 2).reshape(batch, 4, side, side)
        coarse = functional.avg_pool2d(fill_gaps(fine), SUBPIXELS)
        return coarse[:, :3], coarse[:, 3:]

    def surface(self, vertex: Tensor) -> tuple[Tensor, Tensor]:
        """Subpixel and sort key, (batch, P) each, of the surface points of posed vertices; the nearest has the least.

        The key holds the depth in steps of 0.01 mm above the point's number.
        """
        side = CROP * SUBPIXELS
        placed = torch.cat([project(vertex) * SUBPIXELS, CAMERA_Z - vertex[..., 2:]], -1)
        a, b, c = (placed[:, self.corners[:, i], None] for i in range(3))  # (batch, F, 1, 3)
        dense = (self.weights[:, :1] * a + self.weights[:, 1:2] * b + self.weights[:, 2:] * c).flatten(1, 2)
        column, row = dense[..., 0].floor().long(), dense[..., 1].floor().long()
        inside = (column >= 0) & (column < side) & (row >= 0) & (row < side)
        cell = torch.where(inside, row * side + column, side * side)
        points = torch.arange(dense.shape[1], device=vertex.device)
        return cell, (dense[..., 2] * DEPTH_STEPS).long() * dense.shape[1] + points

    def colour_at(self, colour: Tensor, point: Tensor) -> Tensor:
        """Vertex colours (batch, V, 3) at surface points (batch, N) -> (batch, N, 3)."""
        corners = self.corners[point // len(self.weights)]  # (batch, N, 3)
        weights = self.weights[point % len(self.weights)]
        rows = torch.arange(len(colour), device=colour.device)[:, None]
        a, b, c = (weights[..., i, None] * colour[rows, corners[..., i]] for i in range(3))
        return a + b + c


def fill_gaps(fine: Tensor, rounds: int = 3) -> Tensor:
    """Give uncovered subpixels between covered ones their neighbours' mean: (batch, 4, h, w), cover in channel 3.

    A stretched triangle can leave subpixels between its points empty; outside a straight edge three of the nine
    subpixels around are covered, so that edges stay.
    """
    for _ in range(rounds):
        around = functional.avg_pool2d(fine, 3, 1, 1)
        cover = around[:, 3:]
        gap = (fine[:, 3:] == 0) & (cover > 3.5 / 9)
        fine = torch.where(gap, around / cover.clamp(min=1e-6), fine)
    return fine
