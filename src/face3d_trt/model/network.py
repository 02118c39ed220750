"""The coefficient network: a ResNet50 trunk and seven 1x1 heads, with upstream's key names.

Architecture and names follow modelscope `models/cv/face_reconstruction/models/networks.py` (ReconNetWrapper,
`resnet50`, `use_last_fc=False`), whose trunk has torchvision's ResNet-50 v1.5 names under `backbone.`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

FULL_WIDTH = 64  # channels of the first convolution in the published model
STAGE_BLOCKS = (3, 4, 6, 3)
EXPANSION = 4  # output channels of a bottleneck per inner channel
HEAD_SIZES = (80, 64, 80, 3, 27, 2, 1)  # identity, expression, texture, angle, lighting, (tx, ty), tz


class Bottleneck(nn.Module):
    """1x1, 3x3 (strided), 1x1 convolutions around a residual add."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = channels * EXPANSION
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU()
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels_in, h, w) -> (batch, 4 * channels, h / stride, w / stride)."""
        identity = x if self.downsample is None else self.downsample(x)
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.relu(self.bn3(self.conv3(y)) + identity)
        return y


class Backbone(nn.Module):
    """ResNet50 without its classifier: (batch, 3, height, width) -> (batch, 32 * width, 1, 1)."""

    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels_in = width
        for stage, blocks in enumerate(STAGE_BLOCKS):
            channels = width * 2**stage
            layers = []
            for block in range(blocks):
                layers.append(Bottleneck(channels_in, channels, 2 if stage and not block else 1))
                channels_in = channels * EXPANSION
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.avgpool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        """Pooled features of RGB pictures in 0..1, without mean or deviation taken off."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        pooled: Tensor = self.avgpool(self.layer4(self.layer3(self.layer2(self.layer1(x)))))
        return pooled


class ReconNet(nn.Module):
    """Faces to coefficients: (batch, 3, height, width) float32 RGB 0..1 -> (batch, 257) float32.

    Args:
        width: Channels of the first convolution: 64 as published, 16 for a sixteenth of the work.
    """

    def __init__(self, width: int = FULL_WIDTH) -> None:
        super().__init__()
        self.width = width
        self.backbone = Backbone(width)
        features = width * 2 ** (len(STAGE_BLOCKS) - 1) * EXPANSION
        self.final_layers = nn.ModuleList(nn.Conv2d(features, size, 1) for size in HEAD_SIZES)

    def forward(self, image: Tensor) -> Tensor:
        """Coefficients in the order of `names.GROUPS`."""
        features = self.backbone(image)
        return torch.flatten(torch.cat([head(features) for head in self.final_layers], dim=1), 1)


def width_of(state: Mapping[str, Tensor]) -> int:
    """Width of the network that a state dict belongs to.

    Raises:
        KeyError: It holds no first convolution.
    """
    return int(state["backbone.conv1.weight"].shape[0])
