"""JPEG files through nvImageCodec: on a GPU, with the colours that Pillow gives."""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from face3d_trt.errors import MissingError
from face3d_trt.faces.images import LONG_SIDE, orientation
from face3d_trt.files import open_regular
from face3d_trt.optional import install_command, require
from face3d_trt.reconstruct.gpus import CPU, device_name

if TYPE_CHECKING:
    from face3d_trt.faces.images import Pixels

MODULE, EXTRA = "nvidia.nvimgcodec", "decode-gpu"
_QUIET = {"PYNVIMGCODEC_VERBOSITY": "0"}  # read as the package is imported
# As libjpeg does it, and so Pillow. Otherwise chroma is repeated: edges of colours were up to 78 levels off at 4:2:0.
_OPTIONS = ":fancy_upsampling=1"
_READERS = 8  # threads that read files
_CORES = 4  # of the codec, for Huffman codes
_SWAPPED = 5  # EXIF orientations from here on exchange width and height


def check_installed() -> None:
    """Look for the package without importing it, which is not for the process that leads.

    Raises:
        MissingError: It is not there.
    """
    try:
        there = importlib.util.find_spec(MODULE) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        require(MODULE, EXTRA, "--decode gpu")


class Codec:
    """Decodes JPEG files, many at a time.

    Args:
        device: Index of the GPU. CPU: the codec's own decoder there, which says nothing of a GPU's colours.
        hardware: Whether the GPU's JPEG engine may be used; it does not say how it enlarges chroma.

    Raises:
        MissingError: nvImageCodec is not installed, or cannot decode on this GPU.
    """

    def __init__(self, device: int, hardware: bool = False) -> None:
        os.environ.update(_QUIET)
        self._device = device
        with _silence():  # it names on stderr every codec that is not installed
            codec = self._codec = require(MODULE, EXTRA, "--decode gpu")
        gpu = (codec.GPU_ONLY, codec.HYBRID_CPU_GPU) + ((codec.HW_GPU_ONLY,) if hardware else ())
        kinds = (codec.CPU_ONLY,) if device == CPU else gpu
        with _silence():
            try:
                self._decoder: Any = codec.Decoder(
                    device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY if device == CPU else device,
                    max_num_cpu_threads=_CORES,
                    backends=[codec.Backend(kind) for kind in kinds],
                    options=_OPTIONS,
                )
                works = self._decoded([_sample()])[0] is not None
            except RuntimeError as error:
                raise self._missing(str(error)) from error
        if not works:
            raise self._missing("it takes no JPEG there")
        self._pool = ThreadPoolExecutor(_READERS, "face3d-trt files")

    def read(self, paths: Sequence[str]) -> list[Pixels | None]:
        """The pictures in files, upright, (height, width, 3) uint8 RGB.

        None is what has to be read by `read_photo`, which then says what is wrong with it, if anything is: a file that
        is no JPEG, is cut, is larger than LONG_SIDE, is CMYK or RGB inside, or that the codec refuses.
        """
        files = list(self._pool.map(_file, paths))
        taken = [index for index, file in enumerate(files) if file is not None]
        found: list[Pixels | None] = [None] * len(paths)
        if taken:
            data = [file[0] for file in files if file is not None]
            for index, picture in zip(taken, self._decoded(data), strict=True):
                file = files[index]
                if picture is not None and file is not None and picture.shape == (*file[1], 3):
                    found[index] = picture
        return found

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _decoded(self, data: Sequence[bytes]) -> list[Pixels | None]:
        codec = self._codec
        params = codec.DecodeParams(apply_exif_orientation=True, color_spec=codec.SRGB)
        streams = [self._stream(each) for each in data]
        there = [stream for stream in streams if stream is not None]
        pictures = iter(self._decoder.decode(there, params=params) if there else [])
        return [None if stream is None else _on_the_host(next(pictures)) for stream in streams]

    def _stream(self, data: bytes) -> Any:
        try:
            return self._codec.CodeStream(data)
        except RuntimeError:
            return None

    def _missing(self, reason: str) -> MissingError:
        return MissingError(
            f"nvImageCodec cannot decode on {device_name(self._device)}: {reason}",
            allowed="a GPU whose driver knows the CUDA of nvidia-nvimgcodec and nvidia-nvjpeg; or --decode cpu",
            run=install_command(EXTRA),
        )


def _on_the_host(picture: Any) -> Pixels | None:
    if picture is None:
        return None
    array = np.asarray(picture.cpu())
    return array if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3 else None


def _file(path: str) -> tuple[bytes, tuple[int, int]] | None:
    """What is in a file, and height and width of the upright picture; None: not for the codec."""
    try:
        with open_regular(path) as file:
            data = file.read()
        if not data.startswith(b"\xff\xd8\xff") or not data.rstrip(b"\0").endswith(b"\xff\xd9"):
            return None
        header = JpegImageFile(io.BytesIO(data))
        turned = orientation(header)
    except Exception:  # whatever it is, Pillow will say it
        return None
    width, height = header.size
    plain = header.mode in ("RGB", "L") and header.info.get("adobe_transform", 1) == 1
    plain = plain and [layer[0] for layer in header.layer] != list(b"RGB")
    in_exif = turned == 1 or "exif" in header.info  # Pillow looks into XMP as well, the codec does not
    if not plain or not in_exif or max(width, height) > LONG_SIDE:
        return None
    return data, (width, height) if turned >= _SWAPPED else (height, width)


def _sample() -> bytes:
    """A JPEG."""
    target = io.BytesIO()
    Image.new("RGB", (64, 64), (200, 120, 80)).save(target, "JPEG")
    return target.getvalue()


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing on stderr, from C either."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        with suppress(OSError):
            os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
