"""The module that is exported, and that everything else is compared with: float32 PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from face3d_trt.errors import UsageError

if TYPE_CHECKING:
    from face3d_trt.model.load import FaceModel
    from face3d_trt.model.morphable import MorphableModel
    from face3d_trt.model.network import ReconNet


class Front(nn.Module):
    """(batch, height, width, 3) uint8 RGB -> (batch, 3, height, width) float32 0..1."""

    def forward(self, pixels: Tensor) -> Tensor:
        """Lay out as the network wants it, and scale."""
        # TensorRT takes uint8 as an input and only to cast it, so the cast comes first. Without contiguous() the whole
        # network is traced in the permuted memory layout, and its pooling becomes a gather over computed indices.
        return pixels.to(torch.float32).permute(0, 3, 1, 2).contiguous() / 255


class Reference(nn.Module):
    """Pictures to (coeffs,) or (coeffs, vertex, texture), in the order of the ONNX file's outputs."""

    def __init__(self, network: ReconNet, decode: MorphableModel | None, front: Front | None) -> None:
        super().__init__()
        self.front = front
        self.network = network
        self.decode = decode

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Run the parts that this graph has."""
        image = pixels if self.front is None else self.front(pixels)
        coeffs = self.network(image)
        return (coeffs,) if self.decode is None else (coeffs, *self.decode(coeffs))


def reference_module(
    model: FaceModel, outputs: Literal["coeffs", "mesh"], input: Literal["float32", "uint8"]
) -> Reference:
    """The float32 module for these outputs and this input.

    Raises:
        UsageError: `outputs="mesh"` of a model that was loaded without its morphable model.
    """
    if outputs == "mesh" and model.morphable is None:
        raise UsageError("outputs mesh needs the morphable model", allowed="load_model(..., morphable=True)")
    decode = model.morphable if outputs == "mesh" else None
    return Reference(model.network, decode, Front() if input == "uint8" else None).eval()
