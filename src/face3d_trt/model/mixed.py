"""The reference module with its network in another arithmetic, and its morphable model in float32 whatever happens."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from face3d_trt.model.morphable import MorphableModel
    from face3d_trt.model.network import ReconNet

Mode = Literal["fp32", "tf32", "amp", "bf16", "half"]
AMP_TYPE = torch.float16
_TYPES = {"bf16": torch.bfloat16, "half": torch.float16}


def network_type(mode: Mode) -> torch.dtype:
    """What the network's convolutions hold their weights in, and take their pictures in."""
    return _TYPES.get(mode, torch.float32)


class Mixed(nn.Module):
    """Pictures to (coeffs,) or (coeffs, vertex, texture), as `model/reference.py`; float32 results.

    Only the convolutions change their type. Batch norm's statistics stay float32, as apex and autocast have it: a
    running variance may leave float16's range, and cuDNN's kernels for half pictures want them so. The morphable model
    runs outside of autocast, of the caller's too: docs/amp.md has what it costs otherwise.

    Args:
        network: Is copied.
        decode: The morphable model, or None for coefficients alone; is copied.
        mode: What the network computes in.
        channels_last: Whether its weights lie in the order (out, height, width, in).
    """

    def __init__(self, network: ReconNet, decode: MorphableModel | None, mode: Mode, channels_last: bool) -> None:
        super().__init__()
        self.dtype = network_type(mode)
        self.memory = torch.channels_last if channels_last else torch.contiguous_format
        self._amp = mode == "amp"
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.decode = copy.deepcopy(decode)
        for module in self.network.modules():
            if isinstance(module, nn.Conv2d):
                module.to(dtype=self.dtype)
        # A 1 × 1 convolution's weights lie the same in both orders; only `to` gives them the strides that cuDNN asks.
        self.network.to(memory_format=self.memory)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Run it.

        Args:
            pixels: (batch, 3, height, width) RGB 0..1 of the network's type, or (batch, height, width, 3) uint8 RGB.
        """
        kind = pixels.device.type
        image = self._image(pixels) if pixels.dtype == torch.uint8 else pixels
        # Each weight is used once in a call, and autocast drops its cache when the outermost region ends: the cache
        # saves nothing, and inside a CUDA graph it would keep the graph's memory.
        with torch.autocast(kind, dtype=AMP_TYPE, enabled=self._amp, cache_enabled=False):
            coeffs = self.network(image)
        with torch.autocast(kind, enabled=False):
            coeffs = coeffs.float()
            return (coeffs,) if self.decode is None else (coeffs, *self.decode(coeffs))

    def _image(self, pixels: Tensor) -> Tensor:
        image = pixels.permute(0, 3, 1, 2)  # in memory channels_last as it is
        return image.to(dtype=self.dtype, memory_format=self.memory) / 255


@contextlib.contextmanager
def float32_products(tf32: bool) -> Iterator[None]:
    """Inside, cuDNN's float32 convolutions use TF32 or not, and float32 matrix products do not.

    The process's own settings are put back: by default float32 convolutions use TF32.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    try:
        flags = (cudnn.allow_tf32, matmul.allow_tf32)
    except RuntimeError:  # the process has set `fp32_precision`, after which torch refuses to read `allow_tf32`
        flags = None
    if flags == (tf32, False):
        yield
        return
    words = _precisions()
    if flags is None:
        _set_precisions("tf32" if tf32 else "ieee", "ieee")
    else:  # sets `fp32_precision` too; the other way round the flags would be out of step, which the compiler refuses
        cudnn.allow_tf32, matmul.allow_tf32 = tf32, False
    try:
        yield
    finally:
        if flags is not None:
            cudnn.allow_tf32, matmul.allow_tf32 = flags
        _set_precisions(*words)


def _precisions() -> tuple[str, ...]:
    """`fp32_precision` of convolutions and of matrix products; nothing before torch 2.9."""
    conv = getattr(torch.backends.cudnn, "conv", None)
    return (conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision) if conv is not None else ()


def _set_precisions(*words: str) -> None:
    if words:
        torch.backends.cudnn.conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision = words  # type: ignore[attr-defined]
