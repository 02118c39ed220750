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

from face3d_trt.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from face3d_trt.reconstruct.decoder import FaceDecoder

Product = Literal["coeffs", "mesh", "texture", "overlay"]
MeshFormat = Literal["obj", "glb", "ply"]
PRODUCTS: frozenset[Product] = frozenset({"coeffs", "mesh", "texture", "overlay"})
MIN_TEXTURE, MAX_TEXTURE = 256, 4096  # side in texels
IDENTITY = np.eye(2, 3)  # the `crop_from_photo` of a picture that is the crop itself


@dataclass(frozen=True)
class ProductOptions:
    """What is made of a face.

    Attributes:
        save: Which products. `mesh` with format `obj` or `glb` refers to, or embeds, the texture only where `texture`
            is asked for too; without it, it is the geometry alone. A `ply` has the photo's colours at its vertices.
        format: Of the mesh.
        texture_size: Side of the texture in texels, MIN_TEXTURE to MAX_TEXTURE.
    """

    save: frozenset[Product] = frozenset({"coeffs", "mesh", "texture"})
    format: MeshFormat = "obj"
    texture_size: int = 1024

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
        if self.format not in get_args(MeshFormat):
            raise UsageError(f"--format {self.format} is not known", allowed=", ".join(get_args(MeshFormat)))
        if not MIN_TEXTURE <= self.texture_size <= MAX_TEXTURE:
            raise UsageError(
                f"--texture-size {self.texture_size} is out of range", allowed=f"{MIN_TEXTURE} to {MAX_TEXTURE} texels"
            )


def face_path(artefact: Path) -> Path:
    """Where the morphable model of a plan or an ONNX file lies: `engines/a.fp16.plan` → `engines/a.face.npz`.

    Raises:
        MissingError: There is none; the message has the command that writes it.
    """
    raise NotImplementedError


def load_face_decoder(path: Path, checkpoint_sha256: str | None = None) -> FaceDecoder:
    """Read what `export` wrote beside the ONNX file. Needs numpy alone.

    Args:
        path: `NAME.face.npz`.
        checkpoint_sha256: Of the model whose coefficients are to be decoded (`ModelInfo.checkpoint_sha256`); None:
            not checked.

    Raises:
        UsageError: The file is damaged, or belongs to another model.
        MissingError: It is not there.
    """
    raise NotImplementedError


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
        Content by file name, the first being the one that the others belong to.

    Raises:
        InputError: An array of another shape or dtype, coefficients that are not finite.
        FaceError: These coefficients describe no face that can be seen in this photo.
        MissingError: The extra `reconstruct` is not installed.
    """
    raise NotImplementedError
