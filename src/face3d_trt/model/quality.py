"""How well a network reads faces: against the true coefficients of renders it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from face3d_trt.model.procedural import NAMED
from face3d_trt.model.random_faces import random_photographs
from face3d_trt.model.render import Renderer
from face3d_trt.names import GROUPS, MM_PER_UNIT

if TYPE_CHECKING:
    from face3d_trt.model.morphable import MorphableModel
    from face3d_trt.model.network import ReconNet

CHUNK = 32  # pictures rendered at once


@dataclass(frozen=True)
class Quality:
    """Quality of a network on unseen renders.

    Attributes:
        explained: Share of the variance explained, by what: 1 - sum of squared errors / sum of squared deviations.
        leading: The same for each of the ten leading components of identity, expression and texture.
        vertex_mm: Mean distance between the network's vertices and the true ones, posed, in mm.
        shape_mm: The same without pose: identity and expression only.
        mean_face_mm: `shape_mm` of always answering the mean face.
        pictures: How many renders.
    """

    explained: dict[str, float]
    leading: dict[str, tuple[float, ...]]
    vertex_mm: float
    shape_mm: float
    mean_face_mm: float
    pictures: int

    def table(self) -> str:
        """As a Markdown table."""
        rows = [f"| {name} | {value:.3f} |" for name, value in self.explained.items()]
        rows += [
            f"| {group}, each of the ten leading | {min(values):.3f} to {max(values):.3f} |"
            for group, values in self.leading.items()
        ]
        head = "| | share of variance explained |\n|---|---|\n"
        error = (
            f"\n\nMean vertex error {self.vertex_mm:.2f} mm posed, {self.shape_mm:.2f} mm of shape alone "
            f"(always the mean face: {self.mean_face_mm:.2f} mm), on {self.pictures:,} unseen renders.\n"
        )
        return head + "\n".join(rows) + error


def measure_quality(network: ReconNet, morphable: MorphableModel, pictures: int, seed: int) -> Quality:
    """Render `pictures` random faces from `seed`, and compare what the network says with the truth."""
    device = next(network.parameters()).device
    renderer = Renderer(morphable).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    found, truth = [], []
    with torch.inference_mode():
        for start in range(0, pictures, CHUNK):
            images, coeffs = random_photographs(renderer, min(CHUNK, pictures - start), generator)
            found.append(network(images))
            truth.append(coeffs)
        return compare_coefficients(torch.cat(found), torch.cat(truth), renderer.morphable)


def compare_coefficients(found: Tensor, truth: Tensor, morphable: MorphableModel) -> Quality:
    """Quality of coefficients (N, 257) against the true ones (N, 257)."""
    explained = {group: _explained(found[:, part], truth[:, part]) for group, part in GROUPS.items()}
    first_band = [GROUPS["lighting"].start + 9 * channel + k for channel in range(3) for k in (1, 2, 3)]
    explained["lighting, first band"] = _explained(found[:, first_band], truth[:, first_band])
    leading: dict[str, tuple[float, ...]] = {}
    for group in ("identity", "expression", "texture"):
        first = GROUPS[group].start
        part = slice(first, first + NAMED)
        explained[f"{group}, ten leading"] = _explained(found[:, part], truth[:, part])
        leading[group] = tuple(_explained(found[:, [k]], truth[:, [k]]) for k in range(first, first + NAMED))
    distances: dict[str, list[Tensor]] = {"vertex": [], "shape": [], "mean": []}
    for start in range(0, len(found), CHUNK):
        a, b = found[start : start + CHUNK], truth[start : start + CHUNK]
        shape = morphable.shape(b)
        distances["vertex"].append((morphable.vertex(a) - morphable.vertex(b)).norm(dim=-1).mean(1))
        distances["shape"].append((morphable.shape(a) - shape).norm(dim=-1).mean(1))
        distances["mean"].append((morphable.shape(torch.zeros_like(b)) - shape).norm(dim=-1).mean(1))
    mm = {name: float(torch.cat(values).mean()) * MM_PER_UNIT for name, values in distances.items()}
    return Quality(explained, leading, mm["vertex"], mm["shape"], mm["mean"], len(found))


def _explained(found: Tensor, truth: Tensor) -> float:
    deviation = truth - truth.mean(0)
    return 1 - float((found - truth).square().sum() / deviation.square().sum())
