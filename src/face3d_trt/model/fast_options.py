"""How a FastModel computes, and which device can do that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.model.mixed import Mode

Compile = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
CAPTURES = ("reduce-overhead", "max-autotune")  # these run in CUDA graphs of torch's own
_NAMES = {
    "fp32": "float32",
    "tf32": "float32 with TF32 products",
    "amp": "float32 with autocast to float16",
    "bf16": "bfloat16",
    "half": "half",
}


@dataclass(frozen=True)
class FastOptions:
    """How a FastModel computes.

    Attributes:
        mode: What the network computes in; the morphable model is float32 in all of them. "fp32"; "tf32": float32
            weights, TF32 products (Ampere and newer); "amp": float32 weights, `torch.autocast` to float16; "bf16" and
            "half": convolutions with weights of that type.
        compile: The mode of `torch.compile`; None: not compiled.
        graph: Run in CUDA graphs of our own, one for each shape. Not together with `compile`.
        channels_last: Whether pictures and weights lie in the order that tensor cores want.
        search: Let cuDNN time its algorithms at the first call of a shape, instead of trusting its heuristics.
        outputs: "coeffs", or "mesh": coefficients, vertices and texture.
        shapes: How many shapes of input are captured or compiled. Another one drops the graph that was used least
            recently; with `compile` it is refused.
    """

    mode: Mode = "half"
    compile: Compile | None = None
    graph: bool = False
    channels_last: bool = True
    search: bool = True
    outputs: Literal["coeffs", "mesh"] = "coeffs"
    shapes: int = 16

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise UsageError(f"there is no mode {self.mode!r}", allowed=", ".join(get_args(Mode)))
        if self.compile not in (None, *get_args(Compile)):
            raise UsageError(f"torch.compile has no mode {self.compile!r}", allowed=", ".join(get_args(Compile)))
        if self.outputs not in ("coeffs", "mesh"):
            raise UsageError(f"there are no outputs {self.outputs!r}", allowed="coeffs, mesh")
        if self.graph and self.compile:
            raise UsageError("graph and compile do not go together", allowed='compile="reduce-overhead", or graph=True')
        if self.shapes < 1:
            raise UsageError(f"shapes is {self.shapes}", allowed="1 or more")

    @property
    def label(self) -> str:
        """For tables: "torch, half, channels_last, compiled (reduce-overhead)"."""
        parts = ["torch", _NAMES[self.mode]]
        parts += ["channels_last"] * self.channels_last
        parts += [f"compiled ({self.compile})"] if self.compile else ["CUDA graph" if self.graph else "eager"]
        return ", ".join(parts)

    @property
    def overwrites(self) -> bool:
        """Whether a call writes where the former one wrote: it runs in CUDA graphs."""
        return self.graph or self.compile in CAPTURES


def find_device(asked: str | torch.device | None, options: FastOptions) -> torch.device:
    """The device, with its index, after it was found to have what the options want."""
    try:
        device = torch.device(asked or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise UsageError(f"there is no device {asked!r}", allowed="cpu, cuda, cuda:0, ...") from error
    if device.type == "cpu":
        if options.graph or options.mode == "tf32":
            what = "CUDA graphs" if options.graph else "TF32"
            raise UsageError(f"the CPU has no {what}", allowed='device="cuda", or other FastOptions')
        return device
    if device.type != "cuda":
        raise UsageError(f"the device is {device}", allowed="cpu, cuda, cuda:0, ...")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = device.index if device.index is not None else torch.cuda.current_device() if count else 0
    if index >= count:
        raise MissingError(f"there is no GPU {index}: torch sees {count}", run="face3d-trt doctor")
    if options.mode in ("tf32", "bf16") and torch.cuda.get_device_capability(index) < (8, 0):
        raise MissingError(
            f"{torch.cuda.get_device_name(index)} has no {'TF32' if options.mode == 'tf32' else 'bfloat16'}",
            allowed="compute capability 8.0 (Ampere) and newer",
            run='FastOptions(mode="half")',
        )
    return torch.device("cuda", index)
