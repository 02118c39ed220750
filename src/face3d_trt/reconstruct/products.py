"""What one face becomes: named files, in memory. The pipeline decides where they are written.

decoder = load_face_decoder(face_path(plan), checkpoint_sha256=manifest.model.checkpoint_sha256)
decoder.prepare(options)                                    # once, before the workers start
files = make_products(decoder, photo, aligned.crop_from_photo, coeffs, "anna", options)
# {"anna.obj": b"...", "anna.mtl": b"...", "anna.png": b"...", "anna.coeffs.json": b"..."}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from face3d_trt.errors import FaceError, InputError, UsageError
from face3d_trt.names import COEFFICIENTS
from face3d_trt.optional import require
from face3d_trt.reconstruct.coeffs import coeffs_file
from face3d_trt.reconstruct.decoder import FaceDecoder
from face3d_trt.reconstruct.draw import overlay
from face3d_trt.reconstruct.facefile import face_path, read_face_file
from face3d_trt.reconstruct.mesh import glb_file, obj_files, ply_file
from face3d_trt.reconstruct.texture import bake, colours_at

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["IDENTITY", "ProductOptions", "face_path", "load_face_decoder", "make_products"]

Product = Literal["coeffs", "mesh", "texture", "overlay"]
MeshFormat = Literal["obj", "glb", "ply"]
TextureFormat = Literal["png", "jpg"]
PRODUCTS: frozenset[Product] = frozenset({"coeffs", "mesh", "texture", "overlay"})
MIN_TEXTURE, MAX_TEXTURE = 256, 4096  # side in texels
MIME: dict[TextureFormat, str] = {"png": "image/png", "jpg": "image/jpeg"}
PLY_TEXTURE = 512  # side of the texture from which a PLY takes its colours, where none was asked for
JPEG_QUALITY = 95
NEAREST = 1.0  # 1.0 = 100 mm: least distance of a vertex from the camera
FARTHEST_PX = 1e5  # of the crop
IDENTITY = np.eye(2, 3)  # the `crop_from_photo` of a picture that is the crop itself


@dataclass(frozen=True)
class ProductOptions:
    """What is made of a face.

    Attributes:
        save: Which products. Where `mesh` and `texture` are both there, an `obj` refers to the texture's file, and a
            `glb` has the texture inside instead of a file of its own. A `ply` has the photo's colours at its vertices.
        format: Of the mesh.
        texture_size: Side of the texture in texels, MIN_TEXTURE to MAX_TEXTURE.
        texture_format: `png` loses nothing, `jpg` takes a fraction of the time and space.
    """

    save: frozenset[Product] = frozenset({"coeffs", "mesh", "texture"})
    format: MeshFormat = "obj"
    texture_size: int = 1024
    texture_format: TextureFormat = "png"

    def __post_init__(self) -> None:
        """Refuse what does not exist.

        Raises:
            UsageError: An unknown product or format, or a texture size out of range.
        """
        unknown = sorted(set(self.save) - PRODUCTS)
        if unknown or not self.save:
            raise UsageError(
                f"--save {','.join(unknown)} is not known" if unknown else "--save names nothing",
                allowed=f"one or more of {', '.join(sorted(PRODUCTS))}",
            )
        for option, value, known in (
            ("--format", self.format, get_args(MeshFormat)),
            ("--texture-format", self.texture_format, get_args(TextureFormat)),
        ):
            if value not in known:
                raise UsageError(f"{option} {value} is not known", allowed=", ".join(known))
        if not MIN_TEXTURE <= self.texture_size <= MAX_TEXTURE:
            raise UsageError(
                f"--texture-size {self.texture_size} is out of range", allowed=f"{MIN_TEXTURE} to {MAX_TEXTURE} texels"
            )

    @property
    def embeds(self) -> bool:
        """Whether the texture is inside of the mesh's file."""
        return self.format == "glb" and {"mesh", "texture"} <= self.save

    @property
    def baked_size(self) -> int:
        """Side of the texture that has to be computed; 0: none."""
        if "texture" in self.save:
            return self.texture_size
        return PLY_TEXTURE if "mesh" in self.save and self.format == "ply" else 0


def load_face_decoder(path: Path, checkpoint_sha256: str | None = None) -> FaceDecoder:
    """Read what `export` wrote beside the ONNX file. Needs numpy alone.

    Args:
        path: `NAME.face.npz`, see `face_path`.
        checkpoint_sha256: Of the model whose coefficients are to be decoded (`ModelInfo.checkpoint_sha256`); None:
            not checked.

    Raises:
        UsageError: The file is damaged, or belongs to another model.
        MissingError: It is not there.
    """
    return FaceDecoder(read_face_file(path, checkpoint_sha256))


def make_products(
    decoder: FaceDecoder,
    photo: npt.NDArray[np.uint8],
    crop_from_photo: npt.NDArray[np.float64],
    coeffs: npt.NDArray[np.float32],
    stem: str,
    options: ProductOptions,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """The files of one face; safe to call from several threads at once.

    Args:
        decoder: Of the model whose coefficients these are.
        photo: (H, W, 3) uint8 RGB, upright: the original, at any size.
        crop_from_photo: (2, 3): px of the photo to px of the 224 px crop that the network saw, both with the centre of
            the first pixel at (0, 0): `Aligned.crop_from_photo`; `IDENTITY` where the photo is that crop.
        coeffs: (257,) float32.
        stem: What the files' names begin with; no folder.
        options: Which files.
        facts: JSON values that the coefficient file keeps under `source`: name of the photo, plan, detector's score.

    Returns:
        Content by file name. `NAME.coeffs.json` is the last, so that its presence vouches for the others.

    Raises:
        InputError: An array of another shape or dtype, coefficients that are not finite.
        FaceError: These coefficients describe no face that can be seen in this photo.
        MissingError: The extra `reconstruct` is not installed.
    """
    _check(photo, crop_from_photo, coeffs)
    face = decoder.decode(coeffs)
    place = _place(face.crop, face.depth, crop_from_photo)
    baked = bake(decoder, face, place, photo, options.baked_size) if options.baked_size else None
    files: dict[str, bytes] = {}
    texture = encode_texture(baked.pixels, options.texture_format) if baked and "texture" in options.save else None
    name = f"{stem}.{options.texture_format}"
    if "mesh" in options.save:
        if options.format == "obj":
            files |= obj_files(decoder, face, stem, name if texture else None)
        elif options.format == "glb":
            files[f"{stem}.glb"] = glb_file(decoder, face, texture, MIME[options.texture_format])
        elif baked is not None:
            files[f"{stem}.ply"] = ply_file(decoder, face, colours_at(baked.pixels, decoder.uv))
    if texture is not None and not options.embeds:
        files[name] = texture
    if "overlay" in options.save:
        files[f"{stem}.overlay.jpg"] = overlay(decoder, face, place, photo)
    if "coeffs" in options.save:
        files[f"{stem}.coeffs.json"] = coeffs_file(
            decoder, face, coeffs, crop_from_photo, photo.shape[:2], baked, facts or {}
        )
    return files


def encode_texture(pixels: npt.NDArray[np.uint8], kind: TextureFormat) -> bytes:
    """A picture (H, W, 3) uint8 RGB as the bytes of a file."""
    cv2 = require("cv2", "reconstruct", "writing textures")
    how = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
    if kind == "png":  # for skin no larger than with the usual search for repeats, and made in half of the time
        how = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
        if hasattr(cv2, "IMWRITE_PNG_FILTER"):  # OpenCV 4.12
            how += [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP]
    done, data = cv2.imencode(f".{kind}", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), how)
    assert done
    return bytes(data)


def _check(photo: npt.NDArray[Any], crop_from_photo: npt.NDArray[Any], coeffs: npt.NDArray[Any]) -> None:
    if photo.ndim != 3 or photo.shape[2] != 3 or photo.dtype != np.uint8 or not photo.size:
        raise InputError(
            f"a photo of shape {photo.shape} and type {photo.dtype}", allowed="(height, width, 3) uint8 RGB"
        )
    if coeffs.shape != (COEFFICIENTS,) or coeffs.dtype != np.float32 or not np.isfinite(coeffs).all():
        what = "with values that are not finite" if coeffs.shape == (COEFFICIENTS,) else f"of shape {coeffs.shape}"
        raise InputError(
            f"coefficients {what}, of type {coeffs.dtype}", allowed=f"({COEFFICIENTS},) float32, all finite"
        )
    good = crop_from_photo.shape == (2, 3) and np.isfinite(crop_from_photo).all()
    if not good or abs(np.linalg.det(crop_from_photo[:, :2])) < 1e-9:
        raise InputError(
            f"crop_from_photo {crop_from_photo.tolist()} cannot be inverted", allowed="(2, 3), as Aligned gives it"
        )


def _place(crop: npt.NDArray[Any], depth: npt.NDArray[Any], crop_from_photo: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The vertices in the photo, (V, 2) px."""
    if not depth.min() > NEAREST or not np.abs(crop).max() < FARTHEST_PX:
        raise FaceError(
            "the coefficients put the face behind the camera or far outside of the crop",
            allowed="coefficients of a crop with one upright face in it",
        )
    back = np.linalg.inv(crop_from_photo[:, :2])
    return np.asarray((crop - crop_from_photo[:, 2]) @ back.T)
