"""The morphable model: coefficients to a mesh, its colours, and its landmarks in the picture.

Formulas: Deng et al. 2019, "Accurate 3D Face Reconstruction with Weakly-Supervised Learning", as implemented in
modelscope `models/cv/face_reconstruction/models/bfm.py` (ParametricFaceModel). Written so that torch.onnx can export
it: no in-place writes, no data-dependent shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from face3d_trt.decode import CAMERA_Z, FOCAL_PX, SHAPE_COEFFICIENTS
from face3d_trt.names import CROP, GROUPS


@dataclass(frozen=True)
class MorphableArrays:
    """The model's arrays as read from its .mat file, validated; V vertices, F triangles. 1.0 = 100 mm.

    Attributes:
        mean_shape: (3V,) xyz interleaved.
        identity_basis: (3V, 80).
        expression_basis: (3V, 64).
        mean_texture: (3V,) RGB interleaved, 0..255.
        texture_basis: (3V, 80), in the same units.
        triangles: (F, 3) int64, 0-based.
        vertex_triangles: (V, 8) int64, 0-based; F where a vertex has fewer than eight triangles.
        keypoints: (68,) int64, 0-based vertices of the landmarks.
    """

    mean_shape: NDArray[np.float32]
    identity_basis: NDArray[np.float32]
    expression_basis: NDArray[np.float32]
    mean_texture: NDArray[np.float32]
    texture_basis: NDArray[np.float32]
    triangles: NDArray[np.int64]
    vertex_triangles: NDArray[np.int64]
    keypoints: NDArray[np.int64]


class MorphableModel(nn.Module):
    """Decodes coefficients; float32 throughout.

    Args:
        arrays: The model's arrays; the mean shape is moved so that its vertices' mean is the origin, as upstream does.
    """

    mean_shape: Tensor
    shape_basis: Tensor
    mean_texture: Tensor
    texture_basis: Tensor
    triangles: Tensor
    keypoints: Tensor

    def __init__(self, arrays: MorphableArrays) -> None:
        super().__init__()
        mean = arrays.mean_shape.reshape(-1, 3).astype(np.float64)
        mean = mean - mean.mean(axis=0)
        basis = np.concatenate([arrays.identity_basis, arrays.expression_basis], axis=1).T
        self._buffer("mean_shape", mean.reshape(1, -1).astype(np.float32))
        self._buffer("shape_basis", basis)
        self._buffer("mean_texture", arrays.mean_texture.reshape(1, -1) / np.float32(255))
        self._buffer("texture_basis", arrays.texture_basis.T / np.float32(255))
        self._buffer("triangles", arrays.triangles)
        self._buffer("keypoints", arrays.keypoints)

    def _buffer(self, name: str, array: NDArray[np.generic]) -> None:
        self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)

    @property
    def vertices(self) -> int:
        """Number of vertices V."""
        return self.mean_shape.shape[1] // 3

    def shape(self, coeffs: Tensor) -> Tensor:
        """Head-space shape: coefficients (batch, 257) -> (batch, V, 3), 1.0 = 100 mm."""
        flat = self.mean_shape + coeffs[:, :SHAPE_COEFFICIENTS] @ self.shape_basis
        return flat.reshape(-1, self.vertices, 3)

    def albedo(self, coeffs: Tensor) -> Tensor:
        """Colour of every vertex without light: (batch, 257) -> (batch, V, 3) RGB, about 0..1, not clamped."""
        flat = self.mean_texture + coeffs[:, GROUPS["texture"]] @ self.texture_basis
        return flat.reshape(-1, self.vertices, 3)

    def vertex(self, coeffs: Tensor) -> Tensor:
        """Posed shape in world space: (batch, 257) -> (batch, V, 3), 1.0 = 100 mm, y up, the camera at z = 10."""
        turned = self.shape(coeffs) @ rotation(coeffs[:, GROUPS["angle"]]).transpose(1, 2)
        return turned + coeffs[:, GROUPS["translation"]].unsqueeze(1)

    def landmarks(self, vertex: Tensor) -> Tensor:
        """68 landmarks of a posed shape in the 224 px crop: (batch, V, 3) -> (batch, 68, 2), see `project`."""
        return project(vertex[:, self.keypoints])

    def forward(self, coeffs: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (batch, 257) -> vertex (batch, V, 3), texture (batch, V, 3)."""
        return self.vertex(coeffs), self.albedo(coeffs)


def rotation(angles: Tensor) -> Tensor:
    """Rotation matrices Rz·Ry·Rx, for column vectors: (batch, 3) radians -> (batch, 3, 3)."""
    sin, cos = torch.sin(angles), torch.cos(angles)
    (sx, sy, sz), (cx, cy, cz) = sin.unbind(1), cos.unbind(1)
    rows = (
        torch.stack([cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx], 1),
        torch.stack([sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx], 1),
        torch.stack([-sy, cy * sx, cy * cx], 1),
    )
    return torch.stack(rows, 1)


def project(points: Tensor) -> Tensor:
    """World points to the crop: (..., 3) -> (..., 2) px, x right, y down, (0, 0) the picture's upper left corner."""
    depth = CAMERA_Z - points[..., 2]
    x = FOCAL_PX * points[..., 0] / depth + CROP / 2
    y = CROP / 2 - FOCAL_PX * points[..., 1] / depth
    return torch.stack([x, y], -1)
