"""What lower precision costs PyTorch, and where: the network's part, and that of the morphable model's float32 bases.

    python tools/amp_error.py model/                  # on the GPU where there is one
    python tools/amp_error.py model/ --device cpu

Prints the table of docs/amp.md. On renders of random faces of the model directory's morphable model, against float32
PyTorch on the same device:

* the right way: the network in lower precision, the morphable model in float32, outside of autocast;
* "mesh under autocast": the region of autocast holds the whole model, whose matrix products then round their operands;
* "half() and autocast": the widely copied recipe, which converts the bases too;
* "all of it": the converted model without autocast, as far as that runs.

Vertices in mm, over all vertices of all pictures; albedo in grey levels of 255; landmarks in pixels.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from face3d_trt.model.load import FaceModel, load_model
from face3d_trt.model.mixed import Mixed, Mode, float32_products
from face3d_trt.model.random_faces import photograph, random_backgrounds, random_coeffs
from face3d_trt.model.render import Renderer
from face3d_trt.names import MM_PER_UNIT

AT_ONCE = 16
GREY = 255
NAMES: dict[str, Mode] = {"float32": "fp32", "autocast to float16": "amp", "half": "half", "bfloat16": "bf16"}
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
Way = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--pictures", type=int, default=128)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=4711)
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    model = load_model(chosen.model)
    assert model.morphable is not None
    pictures = renders(model, chosen.pictures, chosen.seed)
    print(
        f"{len(pictures)} renders, {model.weights} weights, {model.morphable.vertices} vertices, torch "
        f"{torch.__version__}, {torch.cuda.get_device_name(device) if device.type == 'cuda' else 'CPU'}\n"
    )
    print("| network | morphable model | vertices, mean (mm) | 99 % | worst | landmarks, worst (px) | albedo (grey) |")
    print("|---|---|---|---|---|---|---|")
    with float32_products(tf32=False) if device.type == "cuda" else nullcontext():
        truth = answers(ways(model, device)["float32", "float32"], pictures, device)
        for (network, mesh), way in ways(model, device).items():
            print(f"| {network} | {mesh} |", " | ".join(figures(model, truth, way, pictures, device)), "|", flush=True)
    print(f"\nTriangles whose normal, squared, is zero in float16: {vanishing(model):.1%}")


def ways(model: FaceModel, device: torch.device) -> dict[tuple[str, str], Way]:
    """By what the network and what the morphable model compute in."""
    network, decode = model.network, model.morphable
    assert decode is not None
    found: dict[tuple[str, str], Way] = {}
    for name, mode in NAMES.items():
        mixed = Mixed(network, decode, mode, False).to(device)
        found[name, "float32"] = functools.partial(right, mixed)
    whole = Whole(network, decode).to(device)
    for name, kind in TYPES.items():
        converted = copy.deepcopy(whole).to(kind)
        found["float32", f"under autocast to {name}"] = under_autocast(whole, kind, device, network_too=False)
        found[f"autocast to {name}", "under it too"] = under_autocast(whole, kind, device)
        found[f"{name} under autocast", f"bases in {name} under autocast"] = under_autocast(converted, kind, device)
        found[name, f"all of it in {name}"] = converted
    return found


def right(mixed: Mixed, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """FastModel's way."""
    return tuple(mixed(images.to(mixed.dtype)))


class Whole(torch.nn.Module):
    """Network and morphable model as one module, as most code has them: what is done to it is done to both."""

    def __init__(self, network: torch.nn.Module, decode: torch.nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        self.decode = copy.deepcopy(decode)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run both."""
        coeffs = self.network(images.to(next(self.network.parameters()).dtype))
        return (coeffs, *self.decode(coeffs))


def under_autocast(whole: Whole, kind: torch.dtype, device: torch.device, network_too: bool = True) -> Way:
    """A call of the module inside a region of autocast, or of its morphable model alone."""

    def run(images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if network_too:
            with torch.autocast(device.type, kind):
                return tuple(whole(images))
        coeffs = whole.network(images)
        with torch.autocast(device.type, kind):
            return (coeffs, *whole.decode(coeffs))

    return run


@torch.inference_mode()
def renders(model: FaceModel, count: int, seed: int) -> torch.Tensor:
    """Photographs of random faces, (count, 3, 224, 224) float32 of whole grey levels."""
    assert model.morphable is not None
    generator = torch.Generator().manual_seed(seed)
    renderer = Renderer(model.morphable)
    parts = []
    for coeffs in random_coeffs(count, generator).split(AT_ONCE):
        drawn = renderer(coeffs, random_backgrounds(len(coeffs), generator))
        parts.append((photograph(drawn, generator) * GREY).round() / GREY)
        print(".", end="", file=sys.stderr, flush=True)
    return torch.cat(parts)


@torch.inference_mode()
def answers(way: Way, pictures: torch.Tensor, device: torch.device) -> list[torch.Tensor]:
    """Vertices and albedo, (N, V, 3) float32 each, on the CPU."""
    parts = [way(each.to(device))[1:] for each in pictures.split(AT_ONCE)]
    return [torch.cat([part[index].float().cpu() for part in parts]) for index in range(2)]


def figures(
    model: FaceModel, truth: list[torch.Tensor], way: Way, pictures: torch.Tensor, device: torch.device
) -> list[str]:
    """The cells of a row; or what torch says of this way."""
    try:
        vertex, albedo = answers(way, pictures, device)
    except RuntimeError as error:
        return [f"does not run: {str(error).splitlines()[0][:60]}", *[""] * 4]
    assert model.morphable is not None
    apart: Any = (vertex - truth[0]).norm(dim=-1).numpy() * MM_PER_UNIT
    marks: Any = (model.morphable.landmarks(vertex) - model.morphable.landmarks(truth[0])).norm(dim=-1).max().item()
    grey = (albedo - truth[1]).abs().mean().item() * GREY
    return [
        f"{apart.mean():.4f}",
        f"{np.percentile(apart, 99):.4f}",
        f"{apart.max():.4f}",
        f"{marks:.4f}",
        f"{grey:.4f}",
    ]


def vanishing(model: FaceModel) -> float:
    """Share of the mean face's triangles whose normal has a squared length of zero in float16: no direction is left."""
    assert model.morphable is not None
    corners = model.morphable.mean_shape.reshape(-1, 3)[model.morphable.triangles]
    normals = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]).half().numpy()
    squares: Any = normals * normals
    return float((squares[:, 0] + squares[:, 1] + squares[:, 2] == 0).mean())


if __name__ == "__main__":
    main()
