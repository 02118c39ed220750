"""Arrays that an engine does not take, each with its own words. Only ever called when something is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import InputError
from face3d_trt.names import MAX_BATCH

if TYPE_CHECKING:
    from face3d_trt.engine.profile import Layout

_TO_NCHW, _TO_NHWC = "images.transpose(0, 3, 1, 2)", "images.transpose(0, 2, 3, 1)"
_OVERSHOOT = 0.5  # of bicubic and Lanczos kernels, at the hardest edge
_DARK = 8  # a picture whose brightest value is below that, of 255, is black
_WANTED = {"float32": "(batch, 3, height, width)", "uint8": "(batch, height, width, 3)"}


def to_numpy(images: Any) -> npt.NDArray[Any]:
    """An array of another library on the host, without a copy.

    Raises:
        InputError: Its owner does not give it away.
    """
    try:
        return np.from_dlpack(images)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InputError(
            f"{type(images).__name__} of {getattr(images, 'dtype', 'its type')} does not give its memory away: {error}",
            allowed="a tensor that needs no gradient, of a type that numpy has",
            run="engine(images.detach())    # bfloat16: images.detach().float()",
        ) from error


def not_what_lies_there(images: object, takes: str) -> InputError | None:
    """Arrays whose values are not those in their memory alone; None: it is no such array."""
    if isinstance(images, np.ma.MaskedArray):
        return InputError(
            "images are a masked array, and what to put where it is masked only the caller knows",
            allowed=takes,
            run="engine(images.filled(0))",
        )
    negated = getattr(images, "is_neg", None)
    if callable(negated) and negated() is True:
        return InputError(
            f"images ({type(images).__name__}) are a lazily negated view: the values in memory have the other sign",
            allowed=takes,
            run="engine(images.resolve_neg())",
        )
    return None


def not_an_array(images: object, place: str, takes: str) -> InputError:
    """A list, a picture of PIL, bytes, a number; or memory of a device that is no NVIDIA GPU."""
    kind = type(images).__name__
    if place:
        return InputError(f"images ({kind}) lie on a device that is neither the host nor a CUDA GPU", allowed=takes)
    if isinstance(images, np.generic):
        return InputError(f"images is a single number ({kind}), not an array", allowed=takes)
    run = None
    if isinstance(images, list | tuple):
        run = "np.stack(images)"
    elif hasattr(images, "__array_interface__"):  # PIL's
        run = "np.asarray(picture)[None]"
    return InputError(f"images is {kind}, not an array", allowed=takes, run=run)


def on_a_gpu(takes: str) -> InputError:
    """A GPU array for an engine that computes elsewhere."""
    return InputError(
        "images lie on a GPU, and this engine takes arrays on the host only; Engine, from a .plan, takes them",
        allowed=takes,
        run="engine(images.cpu())",
    )


def on_another_gpu(found: int, wanted: int) -> InputError:
    """The right kind of memory, on the wrong device."""
    return InputError(
        f"images lie on GPU {found}, and this engine runs on GPU {wanted}",
        allowed=f"arrays on the host, or on GPU {wanted}",
        run=f"engine(images.to('cuda:{wanted}'))    # or Engine(PLAN, device={found})",
    )


def not_contiguous(shape: tuple[int, ...]) -> InputError:
    """A view on a GPU; the engine reads addresses."""
    return InputError(
        f"images of shape {shape} on the GPU are a view with gaps or in another order",
        allowed="a C-contiguous array on the GPU; arrays on the host may have any strides",
        run="engine(images.contiguous())",
    )


def wrong_dtype(shape: tuple[int, ...], dtype: np.dtype[Any], layout: Layout, takes: str) -> InputError:
    """Another dtype than the graph's; nothing is converted unasked, because only the caller knows the range."""
    wanted = np.dtype(layout)
    channel, other = (1, 3) if layout == "float32" else (3, 1)
    turned = len(shape) == 4 and shape[other] == 3 and shape[channel] != 3
    if dtype == wanted.newbyteorder():
        run = f"images.astype(np.{wanted})    # this machine's byte order"
    elif layout == "float32":
        run = f"{_TO_NCHW if turned else 'images'}.astype(np.float32)" + (" / 255" if dtype.kind in "ui" else "")
    elif dtype.kind == "f":
        run = f"np.rint({_TO_NHWC if turned else 'images'} * 255).astype(np.uint8)    # where 1.0 is white"
    else:
        run = f"{_TO_NHWC if turned else 'images'}.astype(np.uint8)"
    return InputError(f"images are {dtype}, and this engine takes {wanted}", allowed=takes, run=run)


def wrong_shape(shape: tuple[int, ...], layout: Layout, takes: str) -> InputError | None:
    """What is wrong with a shape whatever the profiles are; None: nothing."""
    channel = 1 if layout == "float32" else 3
    if len(shape) == 3 and shape[channel - 1] == 3:
        return InputError(
            f"images of shape {shape} are one picture without the batch axis", allowed=takes, run="engine(images[None])"
        )
    if len(shape) != 4:
        return InputError(f"images of shape {shape} have {len(shape)} axes, not 4", allowed=takes)
    if shape[channel] != 3:
        return _wrong_channels(shape, channel, layout, takes)
    if shape[0] > MAX_BATCH:
        return InputError(
            f"images of shape {shape} are {shape[0]:,} pictures in one batch",
            allowed=f"up to {MAX_BATCH:,} at a time",
            run=f"for part in np.array_split(images, {-(-shape[0] // MAX_BATCH)}): engine(part)",
        )
    if shape[0] == 0:
        return InputError(
            f"images of shape {shape} are an empty batch", allowed=takes, run="if len(images): engine(images)"
        )
    return None


def _wrong_channels(shape: tuple[int, ...], channel: int, layout: Layout, takes: str) -> InputError:
    other = 4 - channel  # 1 and 3
    if shape[other] == 3:
        names = ("last", "first") if layout == "float32" else ("first", "last")
        return InputError(
            f"images of shape {shape} have their channels {names[0]}, and this engine wants them {names[1]}: "
            f"{_WANTED[layout]}",
            allowed=takes,
            run=f"np.ascontiguousarray({_TO_NCHW if layout == 'float32' else _TO_NHWC})",
        )
    cut = {1: f"np.repeat(images, 3, axis={channel})", 4: "images[:, :3]" if channel == 1 else "images[..., :3]"}
    what = {1: "grey", 4: "RGBA"}.get(shape[channel], "not RGB")
    return InputError(
        f"images of shape {shape} have {shape[channel]} channels ({what}), not 3",
        allowed=takes,
        run=cut.get(shape[channel]),
    )


def wrong_values(images: npt.NDArray[Any], slack: float) -> InputError:
    """NaN, infinities, 0..255, or pictures that were standardized; says in which row first. Needs room for one row."""
    allowed = f"RGB from 0 to 1, by at most {slack} outside; Engine(..., check=False) does not look"
    rows = images if images.strides[0] else images[:1]  # those of np.broadcast_to are one and the same
    not_finite, kind, first, low, high = 0, "infinity", -1, np.inf, -np.inf
    for index, row in enumerate(rows):
        least, most = float(row.min()), float(row.max())  # NaN if there is one
        if np.isfinite(least) and np.isfinite(most):
            low, high = min(low, least), max(high, most)
            if first < 0 and not not_finite and (least < -slack or most > 1 + slack):
                first = index
            continue
        kind = "NaN" if np.isnan(least) else kind
        first = first if not_finite else index
        not_finite += int(row.size - np.isfinite(row).sum())
    if not_finite:
        return InputError(f"images have {not_finite} values that are {kind}, the first in row {first}", allowed=allowed)
    problem = f"images have values from {low:.4g} to {high:.4g}, the first outside 0..1 in row {first}"
    if low >= -_OVERSHOOT and high <= 1 + _OVERSHOOT:
        return InputError(f"{problem}, as resampling overshoots", allowed=allowed, run="engine(np.clip(images, 0, 1))")
    if low >= 0 and _DARK <= high <= 255:
        return InputError(f"{problem}: they look like 0..255", allowed=allowed, run="engine(images / np.float32(255))")
    if low < 0:
        return InputError(
            f"{problem}: they look standardized, and mean and standard deviation are not taken out for this network",
            allowed=allowed,
            run="engine(images * std + mean)    # with those that were taken out, per channel",
        )
    return InputError(problem, allowed=allowed)


def unfit_to_write(array: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Why results cannot be written into `array`; empty if they can."""
    if not isinstance(array, np.ndarray):
        return f"is {type(array).__name__}, not a numpy array"
    if isinstance(array, np.ma.MaskedArray):
        return "is a masked array"
    if array.shape != shape or array.dtype != dtype:
        return f"is {array.dtype} of shape {array.shape}"
    if not array.flags.c_contiguous:
        return "is not C-contiguous"
    return "" if array.flags.writeable else "is not writeable"
