"""Everything constant that faces of one model share, and the one face that coefficients make of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.decode import CAMERA_Z, project, rotation
from face3d_trt.names import GROUPS
from face3d_trt.optional import require
from face3d_trt.reconstruct.atlas import COLOURS_GRID, PLACES_GRID, Atlas, make_atlas
from face3d_trt.reconstruct.objtext import faces, rows
from face3d_trt.reconstruct.visibility import Scatter

if TYPE_CHECKING:
    from face3d_trt.reconstruct.facefile import FaceFile
    from face3d_trt.reconstruct.products import ProductOptions

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Face:
    """One decoded face, V vertices, 1.0 = 100 mm, y up.

    Attributes:
        shape: (V, 3) float32 in head space: upright, looking along z.
        normals: (V, 3) float32, likewise.
        albedo: (V, 3) float32 RGB, 0..1 and a little beyond.
        turn: (3, 3) float64 rotation from head to world space, for column vectors.
        place: (3,) float64 translation to world space; the camera stands at z = 10 and looks along -z.
        crop: (V, 2) float64 px of the 224 px crop, the centre of its first pixel at (0, 0).
        depth: (V,) float32 distance from the camera's plane.
        facing: (V,) float32 cosine between the normal and the direction to the camera.
    """

    shape: Array
    normals: Array
    albedo: Array
    turn: Array
    place: Array
    crop: Array
    depth: Array
    facing: Array


class FaceDecoder:
    """Made once for a process; safe to use from several threads.

    Args:
        file: What `export` wrote.

    Attributes:
        record: Whose bases these are.
        basis: The morphable model.
        uv: (V, 2) float32.
        triangles: (F, 3) int32.
        scatter: Points on the surface.
    """

    def __init__(self, file: FaceFile) -> None:
        self.record, self.basis, self.uv = file.record, file.decoder, file.uv
        self.triangles = file.decoder.triangles.astype(np.int32)
        self.scatter = Scatter(self.triangles, len(self.uv))
        self._atlases: dict[tuple[int, int], Atlas] = {}
        self._face_lines: dict[bool, bytes] = {}
        self._lock = threading.Lock()
        self._owners = np.argsort(self.triangles.reshape(-1), kind="stable") // 3  # triangles, vertex by vertex
        used = np.bincount(self.triangles.reshape(-1), minlength=len(self.uv))
        self._used = np.flatnonzero(used)  # a vertex without triangles has no normal
        self._starts = (np.cumsum(used) - used)[self._used]

    def prepare(self, options: ProductOptions) -> None:
        """Compute what all faces of these options share, so that the first takes no longer than the others.

        Raises:
            MissingError: The extra `reconstruct` is not installed.
        """
        if options.save & {"mesh", "texture", "overlay"}:
            require("cv2", "reconstruct", "baking textures")
        if "mesh" in options.save and options.format != "obj":
            require("trimesh", "reconstruct", "writing meshes")
        elif "mesh" in options.save:
            self.face_lines(uv="texture" in options.save)
        if size := options.baked_size:
            self.atlas(size, PLACES_GRID)
            self.atlas(size, COLOURS_GRID)

    def atlas(self, size: int, grid: int) -> Atlas:
        """The atlas of a texture size on a grid of at most `grid` texels a side; made when first asked for."""
        grid = min(size, grid)
        with self._lock:
            if (size, grid) not in self._atlases:
                self._atlases[size, grid] = make_atlas(self.uv, self.triangles, size, grid)
            return self._atlases[size, grid]

    def decode(self, coeffs: Array) -> Face:
        """Coefficients (257,) float32 to a face."""
        row = coeffs[None]
        shape = self.basis.shape(row)[0]
        albedo = self.basis.albedo(row)[0]
        normals = self.normals(shape)
        turn, place = rotation(row[:, GROUPS["angle"]])[0], coeffs[GROUPS["translation"]].astype(np.float64)
        world = shape @ turn.T.astype(np.float32) + place.astype(np.float32)
        facing_normals = normals @ turn.T.astype(np.float32)
        towards = np.array([0, 0, CAMERA_Z], np.float32) - world
        towards /= np.linalg.norm(towards, axis=1, keepdims=True)
        return Face(
            shape=shape,
            normals=normals,
            albedo=albedo,
            turn=turn,
            place=place,
            crop=project(world) - 0.5,
            depth=np.float32(CAMERA_Z) - world[:, 2],
            facing=np.einsum("vi,vi->v", facing_normals, towards),
        )

    def normals(self, shape: Array) -> Array:
        """Unit normals of vertices, outwards, (V, 3) float32: the mean of a vertex's triangles by area."""
        a, b, c = (np.take(shape, corner, axis=0).T for corner in self._corners)
        (ux, uy, uz), (vx, vy, vz) = b - a, c - a
        flat = np.stack([uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx], 1)
        total = np.zeros_like(shape)
        total[self._used] = np.add.reduceat(np.take(flat, self._owners, axis=0), self._starts, axis=0)
        total /= np.maximum(np.linalg.norm(total, axis=1, keepdims=True), np.float32(1e-12))
        return total

    @cached_property
    def uv_lines(self) -> bytes:
        """The texture coordinates as lines of an OBJ file."""
        return rows("vt", self.uv, decimals=6)

    def face_lines(self, *, uv: bool) -> bytes:
        """The triangles as lines of an OBJ file, with or without texture coordinates."""
        with self._lock:
            if uv not in self._face_lines:
                self._face_lines[uv] = faces(self.triangles, uv)
            return self._face_lines[uv]

    @cached_property
    def _corners(self) -> Array:
        return np.ascontiguousarray(self.triangles.T)
