"""Mesh files. Head space: upright, looking along +z, x to the right as seen from the front, y up.

OBJ and PLY are in mm, GLB in metres as glTF asks. The pose in the photo is in the coefficient file. OBJ is written here
(see `objtext`), GLB and PLY by trimesh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.names import MM_PER_UNIT
from face3d_trt.optional import require
from face3d_trt.reconstruct.objtext import rows

if TYPE_CHECKING:
    from face3d_trt.reconstruct.decoder import Face, FaceDecoder

Array = npt.NDArray[Any]

METRES_PER_UNIT = MM_PER_UNIT / 1000
MATERIAL = "face"
ROUGH = 0.8  # skin; the photo's own highlights are in the texture


def obj_files(decoder: FaceDecoder, face: Face, stem: str, texture: str | None) -> dict[str, bytes]:
    """OBJ, and its MTL where there is a texture.

    Args:
        decoder: Of the face's model.
        face: The face.
        stem: What the files' names begin with.
        texture: Name of the texture's file; None: geometry alone.
    """
    head = b"# face3d-trt: mm, y up, z towards the viewer\n"
    body = [rows("v", face.shape * MM_PER_UNIT), rows("vn", face.normals)]
    if texture is None:
        return {f"{stem}.obj": b"".join([head, *body, decoder.face_lines(uv=False)])}
    head += f"mtllib {stem}.mtl\n".encode()
    body += [decoder.uv_lines, f"usemtl {MATERIAL}\n".encode(), decoder.face_lines(uv=True)]
    material = f"newmtl {MATERIAL}\nKa 0 0 0\nKd 1 1 1\nKs 0 0 0\nd 1\nillum 1\nmap_Kd {texture}\n"
    return {f"{stem}.obj": b"".join([head, *body]), f"{stem}.mtl": material.encode()}


def glb_file(decoder: FaceDecoder, face: Face, texture: bytes | None, mime: str = "image/png") -> bytes:
    """Binary glTF 2.0, with the texture inside.

    Args:
        decoder: Of the face's model.
        face: The face.
        texture: An encoded picture, which trimesh would encode again; None: geometry alone.
        mime: Its type.
    """
    trimesh = require("trimesh", "reconstruct", "writing meshes")
    material = trimesh.visual.material.PBRMaterial(
        name=MATERIAL, metallicFactor=0.0, roughnessFactor=ROUGH, baseColorFactor=[255, 255, 255, 255]
    )
    visual = None if texture is None else trimesh.visual.TextureVisuals(uv=decoder.uv, material=material)
    mesh = _mesh(decoder, face, METRES_PER_UNIT, visual=visual)

    def embed(buffers: dict[Any, bytes], tree: dict[str, Any]) -> None:
        assert texture is not None
        tree["images"].append({"bufferView": len(buffers), "mimeType": mime})
        buffers["texture"] = texture + b"\0" * (-len(texture) % 4)
        tree["textures"].append({"source": len(tree["images"]) - 1})
        tree["materials"][0]["pbrMetallicRoughness"]["baseColorTexture"] = {"index": len(tree["textures"]) - 1}

    return bytes(
        trimesh.exchange.gltf.export_glb(
            mesh, include_normals=True, buffer_postprocessor=None if texture is None else embed
        )
    )


def ply_file(decoder: FaceDecoder, face: Face, colours: Array) -> bytes:
    """Binary PLY with normals and colours of the vertices, (V, 3) uint8 RGB."""
    opaque = np.column_stack([colours, np.full(len(colours), 255, np.uint8)])
    mesh = _mesh(decoder, face, MM_PER_UNIT, vertex_colors=opaque)
    return bytes(mesh.export(file_type="ply", vertex_normal=True))


def _mesh(decoder: FaceDecoder, face: Face, scale: float, **visual: Any) -> Any:
    trimesh = require("trimesh", "reconstruct", "writing meshes")
    return trimesh.Trimesh(
        face.shape * np.float32(scale), decoder.triangles, vertex_normals=face.normals, process=False, **visual
    )
