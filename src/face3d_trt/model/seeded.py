"""Random weights that behave: rounding is not blown up, and different pictures give different coefficients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from face3d_trt.faces.samples import sample_crops
from face3d_trt.model.network import Bottleneck, ReconNet
from face3d_trt.names import GROUPS

# Scale of the residual branches of seeded weights. At 1 the random network is chaotic: it blows rounding up to 8 % in
# fp16 (norm of the error over norm of the variation between pictures); at 0.1 that is 0.4 %, as in trained networks.
BRANCH = 0.1
# Standard deviation of a coefficient over pictures, so that pictures differ as faces do.
SPREAD = {"identity": 0.7, "expression": 0.6, "texture": 0.7, "angle": 0.15, "lighting": 0.1, "translation": 0.05}


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
