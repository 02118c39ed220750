"""Photos from files: upright uint8 RGB, bounded in memory, with a reason when a file cannot be used."""

from __future__ import annotations

import io
import os
import shlex
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops
from PIL.BmpImagePlugin import BmpImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from face3d_trt.errors import ImageError, TooLargeError
from face3d_trt.files import open_regular

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

Pixels = npt.NDArray[np.uint8]

EXTENSIONS = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
MAX_PIXELS = 200_000_000  # a 200 MP phone sensor; twice that would take 1.6 GB to decode
LONG_SIDE = 4096  # px; upstream detects and aligns on at most 2000
BACKGROUND = (128, 128, 128)  # what shows through transparent pixels: mid-grey pulls a crop neither dark nor bright

_EXIF_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error, zlib.error)
_ALLOWED = "a whole JPEG, PNG, WebP or BMP picture"


@dataclass(frozen=True, eq=False)
class Photo:
    """An upright picture.

    Attributes:
        pixels: (H, W, 3) uint8 RGB.
        scale: px of `pixels` per px of the file: 1.0 unless the file was larger than the asked-for long side.
    """

    pixels: Pixels
    scale: float


def read_image(path: Path | str) -> Pixels:
    """The pixels of `read_photo`: (H, W, 3) uint8 RGB.

    Raises:
        ImageError: See `read_photo`.
    """
    return read_photo(path).pixels


def read_photo(path: Path | str, long_side: int = LONG_SIDE) -> Photo:
    """Read a JPEG, PNG, WebP or BMP file, judged by its content and not by its name.

    EXIF orientation is applied; transparency is composited on mid-grey; 16-bit grey becomes 8-bit by 1/257; CMYK is
    converted by the plain formula, colour profiles are not applied (the network was trained on pixels as they are).
    Animations give their first frame. A picture with a side above `long_side` px is shrunk to it.

    Raises:
        ImageError: The file is missing, empty, damaged, of another format, or has more than MAX_PIXELS pixels
            (known from its header, before anything is decoded).
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            return _read(file, str(path), long_side, MAX_PIXELS)
    except _DAMAGED as error:
        allowed = "a file that is there" if isinstance(error, FileNotFoundError) else _ALLOWED
        raise ImageError(f"cannot read {path}: {_reason(error)}", allowed=allowed) from error


def decode_photo(data: bytes, name: str, long_side: int = LONG_SIDE, max_pixels: int = MAX_PIXELS) -> Photo:
    """Read a picture that is in memory, as `read_photo` reads a file.

    Args:
        data: The file's bytes.
        name: For messages.
        long_side: See `read_photo`.
        max_pixels: The most that is decoded; known from the header.

    Raises:
        TooLargeError: It has more pixels.
        ImageError: It is empty, damaged, or of another format.
    """
    try:
        return _read(io.BytesIO(data), name, long_side, max_pixels)
    except _DAMAGED as error:
        raise ImageError(f"cannot read {name}: {_reason(error)}", allowed=_ALLOWED) from error


def _read(file: BinaryIO, name: str, long_side: int, max_pixels: int) -> Photo:
    stored = _open(file, name)
    _check_size(stored, name, max_pixels)
    upright = _UPRIGHT.get(orientation(stored))
    longest = max(stored.size)
    image = _shrink(_to_rgb(_drafted(stored, long_side)), long_side)
    scale = max(image.size) / longest
    if upright is not None:
        image = image.transpose(upright)
    return Photo(np.array(image, dtype=np.uint8), scale)


def image_files(folder: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The pictures under `folder` and the other files there, both sorted, as paths below `folder`.

    A picture is what has one of EXTENSIONS, in any case. Hidden files and folders (`.DS_Store`, half-written files)
    are passed over, and linked folders are not followed, so that no loop can arise.

    Raises:
        ImageError: A folder under it may not be listed.
    """

    def refuse(error: OSError) -> None:
        raise ImageError(f"cannot list {error.filename}: {error.strerror}", allowed="a folder that can be read")

    pictures: list[Path] = []
    others: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                path = (Path(root) / name).relative_to(folder)
                (pictures if path.suffix.lower() in EXTENSIONS else others).append(path)
    return tuple(sorted(pictures)), tuple(sorted(others))


def _open(file: BinaryIO, name: str) -> ImageFile:
    """Read the header. The formats' own classes: `Image.open` would warn about, or refuse, sizes that we allow."""
    start = file.read(16)
    file.seek(0)
    if not start:
        raise ImageError(f"{name} is empty", allowed=_ALLOWED)
    for fits, reader in _READERS:
        if fits(start):
            return reader(file, name)
    raise ImageError(f"{name} is no JPEG, PNG, WebP or BMP picture, whatever its name says", allowed=_ALLOWED)


_READERS: tuple[tuple[Callable[[bytes], bool], type[ImageFile]], ...] = (
    (lambda start: start.startswith(b"\xff\xd8\xff"), JpegImageFile),
    (lambda start: start.startswith(b"\x89PNG\r\n\x1a\n"), PngImageFile),
    (lambda start: start.startswith(b"RIFF") and start[8:12] == b"WEBP", WebPImageFile),
    (lambda start: start.startswith(b"BM"), BmpImageFile),
)


def _check_size(image: ImageFile, name: str, most: int) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError(f"{name} has no pixels: {width}x{height}", allowed=_ALLOWED)
    if width * height > most:
        raise TooLargeError(
            f"{name} is too large: {width}x{height} px are {width * height / 1e6:.0f} million pixels",
            allowed=f"up to {most / 1e6:.0f} million pixels",
            run=f"magick {shlex.quote(name)} -resize {LONG_SIDE}x{LONG_SIDE} smaller.jpg",
        )


def orientation(image: ImageFile) -> int:
    """How a picture is turned, as EXIF counts: 1 to 8, 1 where nothing is said."""
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except _DAMAGED:  # damaged EXIF is common and does not make the pixels worse
        return 1


def _drafted(image: ImageFile, long_side: int) -> ImageFile:
    """Let libjpeg decode at 1/2, 1/4 or 1/8 where that still leaves `long_side`; other formats ignore it."""
    factor = long_side / max(image.size)
    if factor < 1:
        image.draft(None, (max(1, round(image.width * factor)), max(1, round(image.height * factor))))
    return image


def _shrink(image: Image.Image, long_side: int) -> Image.Image:
    factor = long_side / max(image.size)
    if factor >= 1:
        return image
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)


def _to_rgb(image: ImageFile) -> Image.Image:
    """Decode, and bring every mode that the four formats can have to RGB."""
    image.load()
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode == "CMYK":
        return _cmyk_to_rgb(image)
    if image.mode in ("I;16", "I;16B", "I;16L", "I"):  # convert() would clip these at 255
        grey = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        ground = Image.new("RGB", image.size, BACKGROUND)
        ground.paste(layer, mask=layer.getchannel("A"))
        return ground
    return image.convert("RGB")


def _cmyk_to_rgb(image: Image.Image) -> Image.Image:
    """RGB of a CMYK picture, by R = 255 - min(255, C + K) as Pillow does it.

    Adobe stores CMYK JPEGs inverted and marks them; Pillow inverts all of them, marked or not.
    """
    if "adobe" not in image.info:
        image = ImageChops.invert(image)
    return image.convert("RGB")


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
