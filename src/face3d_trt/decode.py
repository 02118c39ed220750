"""Coefficients to a face in numpy alone, for machines that have no torch.

The formulas are those of `model/morphable.py` and `model/render.py`, which PyTorch and the ONNX file compute; a test
holds the two against each other. Deng et al. 2019, "Accurate 3D Face Reconstruction with Weakly-Supervised Learning";
light: Ramamoorthi and Hanrahan 2001, three bands, in the normalisation of modelscope's `bfm.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.names import CROP, GROUPS, MM_PER_UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from face3d_trt.model.morphable import MorphableModel

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.floating[Any]]

FOCAL_PX = 1015.0  # training camera, for the 224 px crop
CAMERA_Z = 10.0  # the camera looks down from z = 10, 1.0 = 100 mm
SHAPE_COEFFICIENTS = GROUPS["expression"].stop  # identity and expression share one basis
AMBIENT = 0.8  # added to the first harmonic of every channel: gamma is the difference from white ambient light
BANDS = (math.pi, 2 * math.pi / math.sqrt(3), 2 * math.pi / math.sqrt(8))  # Lambertian reflection of each band
SCALES = (1 / math.sqrt(4 * math.pi), math.sqrt(3) / math.sqrt(4 * math.pi), 3 * math.sqrt(5) / math.sqrt(12 * math.pi))


@dataclass(frozen=True, eq=False)
class Decoder:
    """The arrays of a morphable model, V vertices and F triangles, 1.0 = 100 mm, and what they make of coefficients.

    Attributes:
        mean_shape: (3V,) float32, xyz interleaved; the vertices' mean is the origin.
        shape_basis: (144, 3V) float32: identity, then expression.
        mean_texture: (3V,) float32 RGB, 0..1.
        texture_basis: (80, 3V) float32, in the same units.
        triangles: (F, 3) integers.
        keypoints: (68,) integers: the landmarks' vertices.
    """

    mean_shape: Array
    shape_basis: Array
    mean_texture: Array
    texture_basis: Array
    triangles: Array
    keypoints: Array

    @classmethod
    def of(cls, morphable: MorphableModel) -> Decoder:
        """That of a PyTorch module, whose memory it shares."""
        arrays = {name: getattr(morphable, name).detach().cpu().numpy() for name in cls.names()}
        return cls(**arrays | {name: arrays[name].reshape(-1) for name in ("mean_shape", "mean_texture")})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the arrays."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def fits(cls, arrays: Mapping[str, Array]) -> bool:
        """Whether `arrays` are those of a morphable model: names, shapes, and indices inside of the mesh."""
        if set(arrays) != set(cls.names()) or arrays["mean_shape"].ndim != 1:
            return False
        size = len(arrays["mean_shape"])
        texture = GROUPS["texture"].stop - GROUPS["texture"].start
        shapes = {
            "mean_shape": (size,),
            "shape_basis": (SHAPE_COEFFICIENTS, size),
            "mean_texture": (size,),
            "texture_basis": (texture, size),
            "triangles": (len(arrays["triangles"]), 3),
            "keypoints": (68,),
        }
        inside = all(
            arrays[name].size and arrays[name].min() >= 0 and arrays[name].max() < size // 3
            for name in ("triangles", "keypoints")
        )
        return size % 3 == 0 and inside and all(arrays[name].shape == shape for name, shape in shapes.items())

    @property
    def vertices(self) -> int:
        """Number of vertices V."""
        return len(self.mean_shape) // 3

    @property
    def head_mm(self) -> tuple[float, float, float]:
        """Width, height and depth of the mean face, in mm."""
        extent = np.ptp(self.mean_shape.reshape(-1, 3), axis=0) * MM_PER_UNIT
        return float(extent[0]), float(extent[1]), float(extent[2])

    def shape(self, coeffs: Array) -> Array:
        """Head-space shape: coefficients (batch, 257) -> (batch, V, 3)."""
        flat = self.mean_shape + coeffs[:, :SHAPE_COEFFICIENTS] @ self.shape_basis
        return np.asarray(flat.reshape(len(coeffs), -1, 3))

    def albedo(self, coeffs: Array) -> Array:
        """Colour of every vertex without light: (batch, 257) -> (batch, V, 3) RGB, about 0..1, not clamped."""
        flat = self.mean_texture + coeffs[:, GROUPS["texture"]] @ self.texture_basis
        return np.asarray(flat.reshape(len(coeffs), -1, 3))

    def normals(self, shape: Array) -> Array:
        """Unit normals of vertices, (batch, V, 3) -> the same, outwards: the mean of a vertex's triangles by area."""
        a, b, c = (shape[:, self.triangles[:, corner]] for corner in range(3))
        flat = np.cross(b - a, c - a)
        owners = self.triangles.reshape(-1)
        total = np.empty(shape.shape)
        for row, axis in np.ndindex(len(shape), 3):
            total[row, :, axis] = _per_vertex(owners, flat[row, :, axis], self.vertices)
        return np.asarray(total / np.maximum(np.linalg.norm(total, axis=-1, keepdims=True), 1e-12))

    def undefined(self, shape: Array, moved: float) -> Array:
        """Vertices without a normal to speak of, (batch, V, 3) -> (batch, V) bool.

        Where the surface folds, its triangles' normals cancel, and what is left turns with any rounding. Moving the
        corners by `moved` changes the sum of a vertex's triangles, twice their areas along their normals, by at most
        `moved` times the sum of their perimeters; where that is more than the sum itself, the normal has no direction.

        Args:
            shape: Head space.
            moved: How far, 1.0 = 100 mm.
        """
        a, b, c = (shape[:, self.triangles[:, corner]] for corner in range(3))
        flat = np.cross(b - a, c - a)
        around = sum(np.linalg.norm(edge, axis=-1) for edge in (b - a, c - b, a - c))
        owners = self.triangles.reshape(-1)
        found = np.empty(shape.shape[:2], bool)
        for row in range(len(shape)):
            total = [_per_vertex(owners, flat[row, :, axis], self.vertices) for axis in range(3)]
            found[row] = moved * _per_vertex(owners, around[row], self.vertices) > np.linalg.norm(total, axis=0)
        return found


def _per_vertex(owners: Array, of_triangles: Array, vertices: int) -> Array:
    """Sums over each vertex's triangles: their corners (F * 3,), a value of each (F,) -> (V,)."""
    return np.bincount(owners, weights=np.repeat(of_triangles, 3), minlength=vertices)


def pose(shape: Array, coeffs: Array) -> Array:
    """Head space to world space: (batch, V, 3) and (batch, 257) -> (batch, V, 3), y up, the camera at z = 10."""
    turn = rotation(coeffs[:, GROUPS["angle"]]).astype(shape.dtype)
    return np.asarray(shape @ turn.transpose(0, 2, 1) + coeffs[:, None, GROUPS["translation"]])


def rotation(angles: Array) -> Floats:
    """Rotation matrices Rz·Ry·Rx, for column vectors: (batch, 3) radians -> (batch, 3, 3) float64."""
    (sx, sy, sz), (cx, cy, cz) = (f(angles.astype(np.float64)).T for f in (np.sin, np.cos))
    rows = (
        (cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx),
        (sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx),
        (-sy, cy * sx, cy * cx),
    )
    return np.moveaxis(np.array(rows, dtype=np.float64), -1, 0)


def project(points: Array) -> Floats:
    """World points to the crop: (..., 3) -> (..., 2) px, x right, y down, (0, 0) the picture's upper left corner."""
    points = points.astype(np.float64)
    depth = CAMERA_Z - points[..., 2]
    x = FOCAL_PX * points[..., 0] / depth + CROP / 2
    y = CROP / 2 - FOCAL_PX * points[..., 1] / depth
    return np.stack([x, y], -1)


def harmonics(normals: Array) -> Array:
    """The nine basis functions at unit normals: (..., 3) -> (..., 9)."""
    x, y, z = np.moveaxis(normals, -1, 0)
    first, second, third = (a * c for a, c in zip(BANDS, SCALES, strict=True))
    basis = (
        np.full_like(x, first),
        -second * y,
        second * z,
        -second * x,
        third * x * y,
        -third * y * z,
        third / (2 * math.sqrt(3)) * (3 * z * z - 1),
        -third * x * z,
        third / 2 * (x * x - y * y),
    )
    return np.stack(basis, -1)


def gamma(coeffs: Array) -> Array:
    """The light: coefficients (batch, 257) -> (batch, 3, 9), harmonics of each colour channel, ambient included."""
    light = coeffs[:, GROUPS["lighting"]].reshape(len(coeffs), 3, 9).copy()
    light[..., 0] += AMBIENT
    return light


def light(normals: Array, light_of: Array) -> Array:
    """What a white surface reflects: world-space normals (batch, V, 3), `gamma` (batch, 3, 9) -> (batch, V, 3)."""
    return np.asarray(harmonics(normals) @ light_of.transpose(0, 2, 1))
