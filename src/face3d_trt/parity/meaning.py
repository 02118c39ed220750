"""Errors in the face's own terms: what another set of coefficients changes, in mm, px, degrees, and in the picture.

docs/accuracy.md has the definitions for users, and the argument for the limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from face3d_trt.decode import Decoder, gamma, light, pose, project, rotation
from face3d_trt.names import GROUPS, MM_PER_UNIT
from face3d_trt.parity.portrait import Portrait

if TYPE_CHECKING:
    from collections.abc import Callable

Array = npt.NDArray[Any]
ROWS_AT_ONCE = 8  # a decoded face of 35,709 vertices takes 4 MB
TOP_PSNR = 100.0  # dB, of pictures that differ by less than 1e-5 of white; equal ones would be infinitely good
GREY = 255.0  # levels
FOLD_MM = (
    0.02  # moves of a vertex, half of what fp16 may do to shape, by which a normal may not be turned by 90 degrees
)


@dataclass(frozen=True)
class Measure:
    """One thing that is measured.

    Attributes:
        title: For people.
        unit: `mm`, `px`, `deg`, `dB`, `grey` levels of 255, `%`, or nothing.
        better: Whether less or more of it is better.
    """

    title: str
    unit: str
    better: Literal["low", "high"] = "low"

    @property
    def worst(self) -> float:
        """What stands for values that are not finite."""
        return math.inf if self.better == "low" else -math.inf

    @property
    def label(self) -> str:
        """`vertices, mean (mm)`."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


MEASURES: dict[str, Measure] = {
    "vertex_mean": Measure("vertices, mean", "mm"),
    "vertex_p99": Measure("vertices, p99", "mm"),
    "vertex_max": Measure("vertices, max", "mm"),
    "shape_mean": Measure("shape alone, mean", "mm"),
    "shape_p99": Measure("shape alone, p99", "mm"),
    "shape_max": Measure("shape alone, max", "mm"),
    "landmark_mean": Measure("landmarks, mean", "px"),
    "landmark_max": Measure("landmarks, max", "px"),
    "rotation": Measure("rotation", "deg"),
    "translation": Measure("translation", "mm"),
    "albedo_psnr": Measure("albedo, PSNR", "dB", "high"),
    "albedo_ssim": Measure("albedo, SSIM", "", "high"),
    "shaded_psnr": Measure("shaded, PSNR", "dB", "high"),
    "shaded_ssim": Measure("shaded, SSIM", "", "high"),
    "light_relative": Measure("light, harmonics", "%"),
    "light_grey": Measure("light on face", "grey"),
    "mesh_mean": Measure("mesh output, mean", "mm"),
    "mesh_p99": Measure("mesh output, p99", "mm"),
    "mesh_max": Measure("mesh output, max", "mm"),
}


@dataclass(frozen=True, eq=False)
class Face:
    """Decoded coefficients of some pictures.

    Attributes:
        shape: (N, V, 3), identity and expression, without pose, 1.0 = 100 mm.
        vertex: (N, V, 3), posed.
        landmarks: (N, 68, 2) px.
        turn: (N, 3, 3) rotation matrices.
        translation: (N, 3).
        gamma: (N, 3, 9) light.
        normals: (N, V, 3), posed.
        colour: (N, V, 3) albedo of the vertices.
        albedo: (N, P, 3) at the portrait's pixels, 0..1.
        shaded: (N, P, 3) likewise, albedo under the light.
    """

    shape: Array
    vertex: Array
    landmarks: Array
    turn: Array
    translation: Array
    gamma: Array
    normals: Array
    colour: Array
    albedo: Array
    shaded: Array


class Meter:
    """Measures the distance between two sets of coefficients of one morphable model.

    Args:
        decoder: The morphable model.
        similarity: scikit-image's `structural_similarity`, see `find_similarity`; None: SSIM is not measured.
    """

    def __init__(self, decoder: Decoder, similarity: Callable[..., Any] | None) -> None:
        self.decoder = decoder
        self._portrait = Portrait(decoder)
        self._similarity = similarity

    def measure(self, reference: Array, candidate: Array) -> dict[str, Array]:
        """Everything in MEASURES that coefficients tell, for each pair of rows.

        Args:
            reference: (N, 257), or (1, 257) for all rows of `candidate`.
            candidate: (N, 257).

        Returns:
            By measure, (N,) float64. Rows that are not finite, or decode to something that is not, get the worst value.
        """
        sound: Array = np.asarray(np.isfinite(candidate).all(axis=1) & np.isfinite(reference).all(axis=1))
        reference, candidate = np.nan_to_num(reference), np.where(sound[:, None], candidate, 0)
        pieces = []
        with np.errstate(all="ignore"):
            alone = self.face(reference) if len(reference) == 1 else None
            for start in range(0, len(candidate), ROWS_AT_ONCE):
                piece = slice(start, start + ROWS_AT_ONCE)
                pieces.append(self._compare(alone or self.face(reference[piece]), self.face(candidate[piece])))
        found = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        return {name: _or_worst(name, values, sound) for name, values in found.items()}

    def face(self, coeffs: Array) -> Face:
        """Decode coefficients (N, 257)."""
        shape, colour = self.decoder.shape(coeffs), self.decoder.albedo(coeffs)
        turn = rotation(coeffs[:, GROUPS["angle"]])
        normals = self.decoder.normals(shape) @ turn.transpose(0, 2, 1)
        vertex = pose(shape, coeffs)
        return Face(
            shape=shape,
            vertex=vertex,
            landmarks=project(vertex[:, self.decoder.keypoints]),
            turn=turn,
            translation=coeffs[:, GROUPS["translation"]].astype(np.float64),
            gamma=gamma(coeffs).astype(np.float64),
            normals=normals,
            colour=colour,
            albedo=self._portrait.pixels(colour),
            shaded=self._portrait.pixels(colour * light(normals, gamma(coeffs))),
        )

    def _compare(self, reference: Face, candidate: Face) -> dict[str, Array]:
        landmarks = np.linalg.norm(candidate.landmarks - reference.landmarks, axis=-1)
        difference = candidate.gamma - reference.gamma
        folded = self._portrait.touched(self.decoder.undefined(reference.shape, FOLD_MM / MM_PER_UNIT))
        relit = self._portrait.pixels(reference.colour * light(reference.normals, candidate.gamma))
        return {
            **spread("vertex", distances(reference.vertex, candidate.vertex)),
            **spread("shape", distances(reference.shape, candidate.shape)),
            "landmark_mean": landmarks.mean(axis=1),
            "landmark_max": landmarks.max(axis=1),
            "rotation": np.rad2deg(angle_between(reference.turn, candidate.turn)),
            "translation": np.linalg.norm(candidate.translation - reference.translation, axis=1) * MM_PER_UNIT,
            **self._likeness("albedo", reference.albedo, candidate.albedo),
            **self._likeness(
                "shaded", reference.shaded, np.where(folded[..., None], reference.shaded, candidate.shaded)
            ),
            "light_relative": 100 * _norm(difference) / _norm(reference.gamma),
            "light_grey": GREY * np.abs(relit - reference.shaded).mean(axis=(1, 2)),
        }

    def _likeness(self, name: str, reference: Array, candidate: Array) -> dict[str, Array]:
        """PSNR over the pixels of the face, and SSIM: 7 px windows, per channel, mean over these pixels."""
        error = np.square(candidate - reference).mean(axis=(1, 2), dtype=np.float64)
        found = {f"{name}_psnr": np.minimum(TOP_PSNR, -10 * np.log10(np.maximum(error, 1e-30)))}
        if self._similarity is not None:
            pairs = zip(np.broadcast_to(reference, candidate.shape), candidate, strict=True)
            found[f"{name}_ssim"] = np.array([self._alike(*pair) for pair in pairs])
        return found

    def _alike(self, one: Array, other: Array) -> float:
        assert self._similarity is not None
        first, second = self._portrait.pictures(np.stack([one, other]).astype(np.float64))
        _, local = self._similarity(first, second, data_range=1.0, channel_axis=-1, full=True)
        return float(local[self._portrait.mask].mean())


def find_similarity() -> Callable[..., Any] | None:
    """scikit-image's SSIM where it is installed."""
    try:
        from skimage.metrics import structural_similarity
    except ImportError:
        return None
    return structural_similarity  # type: ignore[no-any-return]


def distances(reference: Array, candidate: Array) -> Array:
    """Between the vertices of two meshes, (batch, V, 3) each, 1.0 = 100 mm: (batch, V) in mm."""
    return np.asarray(np.linalg.norm(candidate - reference, axis=-1)) * MM_PER_UNIT


def spread(name: str, values: Array) -> dict[str, Array]:
    """Mean, 99th percentile and largest of each row of (batch, V)."""
    return {
        f"{name}_mean": values.mean(axis=1, dtype=np.float64),
        f"{name}_p99": np.percentile(values, 99, axis=1),
        f"{name}_max": values.max(axis=1),
    }


def angle_between(one: Array, other: Array) -> Array:
    """The angle of the rotation from one matrix to the other, (batch, 3, 3) each: (batch,) radians, 0 to π.

    From the chord, ‖A - B‖ = 2√2 sin(angle / 2): the arc cosine of the trace has no digits left at small angles.
    """
    return np.asarray(2 * np.arcsin(np.minimum(1, _norm(one - other) / (2 * math.sqrt(2)))))


def _norm(matrices: Array) -> Array:
    return np.asarray(np.sqrt(np.square(matrices).sum(axis=(1, 2))))


def _or_worst(name: str, values: Array, sound: Array) -> Array:
    return np.where(sound & np.isfinite(values), values, MEASURES[name].worst)
