"""Random coefficients and random photographs of them: what a network can be trained, calibrated and tested on.

Everything draws from the generator that is passed in: the same seed gives the same pictures on the same kind of
machine.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from face3d_trt.names import COEFFICIENTS, CROP, GROUPS

ANGLE_SPREAD = (0.18, 0.35, 0.12)  # radians: pitch, yaw, roll
TRANSLATION_SPREAD = (0.06, 0.06, 0.30)  # 1.0 = 100 mm; alignment leaves little of x and y
LIGHT_SPREAD = 0.16  # of the first band's three directions; the second band has a third of it
AMBIENT_SPREAD = 0.08
COLOUR_SPREAD = 0.25  # of the light that differs between the colour channels, as a share of the rest


def random_coeffs(count: int, generator: torch.Generator, variation: float = 1.0) -> Tensor:
    """Coefficients of `count` random faces: (count, 257) float32 on the generator's device.

    Args:
        count: How many.
        generator: Source of randomness.
        variation: Scale of identity, expression and texture; 1 is a standard normal shrunk to keep faces face-like.
    """
    device = generator.device

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    coeffs = torch.zeros(count, COEFFICIENTS, device=device)
    for group, scale in (("identity", 0.8), ("expression", 0.7), ("texture", 0.8)):
        part = GROUPS[group]
        coeffs[:, part] = normal(count, part.stop - part.start).clamp(-2.5, 2.5) * scale * variation
    coeffs[:, GROUPS["angle"]] = normal(count, 3).clamp(-2.5, 2.5) * torch.tensor(ANGLE_SPREAD, device=device)
    coeffs[:, GROUPS["translation"]] = normal(count, 3).clamp(-2.5, 2.5) * torch.tensor(
        TRANSLATION_SPREAD, device=device
    )
    spread = torch.tensor([AMBIENT_SPREAD] + [LIGHT_SPREAD] * 3 + [LIGHT_SPREAD / 3] * 5, device=device)
    white, tint = normal(count, 1, 9), normal(count, 3, 9)
    gamma = (white + COLOUR_SPREAD * tint) * spread
    gamma[..., 2] += 0.25  # light comes from the viewer's side more often than from behind
    coeffs[:, GROUPS["lighting"]] = gamma.flatten(1)
    return coeffs


def random_backgrounds(count: int, generator: torch.Generator) -> Tensor:
    """Soft blotches and hard-edged blocks of random colours: (count, 3, 224, 224) 0..1."""
    device = generator.device
    base = torch.rand(count, 3, 1, 1, generator=generator, device=device)
    picture = base.expand(count, 3, CROP, CROP)
    for cells in (3, 9, 28):
        field = torch.rand(count, 3, cells, cells, generator=generator, device=device) - 0.5
        soft = functional.interpolate(field, size=(CROP, CROP), mode="bilinear", align_corners=False)
        hard = functional.interpolate(field, size=(CROP, CROP), mode="nearest")
        share = torch.rand(count, 1, 1, 1, generator=generator, device=device)
        weight = torch.rand(count, 1, 1, 1, generator=generator, device=device) * 0.8
        picture = picture + weight * torch.where(share < 0.5, soft, hard)
    grey = picture.mean(1, keepdim=True)
    return (grey + (picture - grey) * torch.rand(count, 1, 1, 1, generator=generator, device=device)).clamp(0, 1)


def photograph(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Exposure, blur and sensor noise of a random camera, in that order: (batch, 3, 224, 224) 0..1 -> the same."""
    count, device = len(pictures), pictures.device

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, 1, generator=generator, device=device)

    exposed = (pictures * uniform(0.88, 1.1)).clamp(1e-4, 1) ** uniform(0.92, 1.08)
    blurred = _blur(exposed, uniform(0.3, 1.6))
    noise = torch.randn(pictures.shape, generator=generator, device=device) * uniform(0.0, 0.03)
    return (blurred + noise).clamp(0, 1)


def _blur(pictures: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur with its own sigma (px) for every picture."""
    count, channels, height, width = pictures.shape
    offsets = torch.arange(-4, 5, device=pictures.device, dtype=pictures.dtype)
    kernel = torch.exp(-0.5 * (offsets / sigma.view(count, 1)) ** 2)
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(channels, 0)
    flat = functional.pad(pictures.reshape(1, count * channels, height, width), (4, 4, 4, 4), mode="replicate")
    flat = functional.conv2d(flat, kernel[:, None, :, None], groups=count * channels)
    flat = functional.conv2d(flat, kernel[:, None, None, :], groups=count * channels)
    return flat.reshape(pictures.shape)


def random_photographs(renderer: nn.Module, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures of random faces and their coefficients: (count, 3, 224, 224) 0..1 and (count, 257).

    Args:
        renderer: A `Renderer`, compiled or not.
        count: How many.
        generator: Source of randomness, on the renderer's device.
    """
    coeffs = random_coeffs(count, generator)
    drawn = renderer(coeffs, random_backgrounds(count, generator))
    return photograph(drawn, generator), coeffs
