"""A morphable model out of formulas: a face-like surface, smooth bases, an albedo. It holds nobody's data.

The surface is a disc of V points (Fibonacci spiral, Delaunay triangles) bent over an ellipsoid, with nose, eye sockets,
brows, cheeks, lips and chin as bumps. The leading basis vectors are changes that a person would name (face width, nose
length, jaw opening, skin tone); the rest are smooth random fields of decaying size. x right in the picture, y up, z
towards the camera, 1.0 = 100 mm.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import Delaunay

from face3d_trt.model.morphable import MorphableArrays

Array = NDArray[np.float64]
Field = Callable[[Array, Array], Array]

MAX_TRIANGLES_PER_VERTEX = 8
EYE = (0.31, 0.27)  # centre of the right-hand eye in the picture: half of a 62 mm pupil distance
MOUTH_Y, MOUTH_HALF = -0.42, 0.25
NOSE_TIP_Y = -0.06
BROW_Y = 0.43
NAMED = 10  # leading components that a person would name


def disc(vertices: int, boundary: int) -> Array:
    """(vertices, 2) points that fill the unit disc evenly, `boundary` of them on its circle."""
    inner = vertices - boundary
    index = np.arange(inner) + 0.5
    radius = np.sqrt(index / inner) * (1 - np.pi / boundary)
    angle = index * np.pi * (3 - np.sqrt(5))
    circle = 2 * np.pi * np.arange(boundary) / boundary
    radius = np.concatenate([radius, np.ones(boundary)])
    angle = np.concatenate([angle, circle])
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)


def triangulate(points: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Delaunay triangles (F, 3), counter-clockwise from the front, and those of each vertex (V, 8), padded with F."""
    triangles = Delaunay(points).simplices.astype(np.int64)
    a, b, c = (points[triangles[:, i]] for i in range(3))
    flipped = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0] < 0
    triangles[flipped] = triangles[flipped][:, ::-1]
    order = np.argsort(triangles.reshape(-1), kind="stable")
    owner = triangles.reshape(-1)[order]
    slot = np.arange(len(owner)) - np.searchsorted(owner, owner)
    if slot.max() >= MAX_TRIANGLES_PER_VERTEX:
        raise ValueError(
            f"a vertex has {slot.max() + 1} triangles; the file format has room for {MAX_TRIANGLES_PER_VERTEX}"
        )
    fans = np.full((len(points), MAX_TRIANGLES_PER_VERTEX), len(triangles), np.int64)
    fans[owner, slot] = order // 3
    return triangles, fans


def bump(x: Array, y: Array, cx: float, cy: float, sx: float, sy: float) -> Array:
    """A Gaussian of height 1 around (cx, cy)."""
    return np.exp(-0.5 * (((x - cx) / sx) ** 2 + ((y - cy) / sy) ** 2))


def pair(x: Array, y: Array, cx: float, cy: float, sx: float, sy: float) -> Array:
    """The same bump on both sides of the face."""
    return bump(np.abs(x), y, cx, cy, sx, sy)


def step(value: Array, start: float, end: float) -> Array:
    """Smooth step from 0 at `start` to 1 at `end`."""
    t = np.clip((value - start) / (end - start), 0, 1)
    return t * t * (3 - 2 * t)


def nose(x: Array, y: Array) -> Array:
    """The nose's profile, about 1 at its tip: a ridge that grows downwards, a ball, two wings, cut off below."""
    along = step(y, 0.36, NOSE_TIP_Y)
    ridge = along**1.2 * np.exp(-0.5 * (x / (0.055 + 0.05 * along)) ** 2) * (1 - step(y, -0.07, -0.17))
    ball = 0.30 * bump(x, y, 0, NOSE_TIP_Y - 0.02, 0.085, 0.06)
    wings = 0.34 * pair(x, y, 0.125, -0.115, 0.045, 0.045)
    return ridge * 0.78 + ball + wings


def lips(x: Array, y: Array) -> Array:
    """Height of the two lips with the crease between them, about 1 at the lower lip."""
    taper = np.clip(1 - (x / (MOUTH_HALF + 0.03)) ** 2, 0, None)
    upper = 0.75 * np.exp(-0.5 * ((y - MOUTH_Y - 0.048) / 0.03) ** 2)
    lower = np.exp(-0.5 * ((y - MOUTH_Y + 0.06) / 0.038) ** 2)
    crease = -0.6 * np.exp(-0.5 * ((y - MOUTH_Y) / 0.014) ** 2)
    return (upper + lower + crease) * taper


def base_shape(points: Array) -> Array:
    """The mean face over the unit disc: (V, 2) -> (V, 3)."""
    radius = np.linalg.norm(points, axis=1)
    spread = np.where(radius > 0, np.sin(radius * 1.42) / np.maximum(radius, 1e-9), 1.42) / np.sin(1.42)
    x = 0.76 * points[:, 0] * spread
    y = 1.02 * points[:, 1] * spread - 0.02
    z = 0.80 * np.cos(radius * 1.42)
    x = (
        x
        * (1 - 0.22 * step(y, -0.15, -1.0))
        * (1 - 0.06 * step(y, 0.3, 1.0))
        * (1 + 0.09 * bump(x, y, 0, -0.66, 9, 0.22))
    )
    z = z + 0.36 * nose(x, y)
    z = z - 0.125 * pair(x, y, EYE[0], EYE[1], 0.155, 0.10) + 0.055 * pair(x, y, EYE[0], EYE[1] - 0.005, 0.095, 0.060)
    z = z - 0.03 * bump(x, y, 0, 0.33, 0.09, 0.08)
    z = z + 0.050 * pair(x, y, 0.27, BROW_Y - 0.01, 0.17, 0.05) + 0.03 * bump(x, y, 0, 0.70, 0.35, 0.2)
    z = z + 0.060 * pair(x, y, 0.40, -0.02, 0.15, 0.16) - 0.06 * pair(x, y, 0.45, -0.42, 0.14, 0.16)
    z = z + 0.050 * lips(x, y) + 0.03 * bump(x, y, 0, MOUTH_Y, 0.22, 0.16)
    z = z - 0.022 * pair(x, y, MOUTH_HALF + 0.02, MOUTH_Y, 0.035, 0.035) - 0.02 * bump(x, y, 0, -0.25, 0.025, 0.06)
    z = z - 0.040 * bump(x, y, 0, -0.59, 0.16, 0.035) + 0.085 * bump(x, y, 0, -0.78, 0.15, 0.11)
    return np.stack([x, y, z], 1)


def albedo(x: Array, y: Array) -> Array:
    """Mean colour over the face plane: (V,) -> (V, 3) RGB 0..255, with lips, brows, eyes, nostrils and cheeks."""
    skin = np.array([206.0, 160.0, 134.0])
    colour = np.broadcast_to(skin, (len(x), 3)).copy()
    for mask, target in albedo_layers(x, y):
        colour += mask[:, None] * (np.array(target) - colour)
    return colour


def albedo_layers(x: Array, y: Array) -> list[tuple[Array, tuple[float, float, float]]]:
    """(mask 0..1, RGB) painted one over the other."""
    ax = np.abs(x)
    ex, ey = (ax - EYE[0]) / 0.125, (y - EYE[1] + 0.012 * ((ax - EYE[0]) / 0.1) ** 2) / 0.047
    opening = 1 - step(np.hypot(ex, ey), 0.80, 1.10)
    lash = np.exp(-0.5 * ((np.hypot(ex, ey) - 1.05) / 0.16) ** 2) * step(y - EYE[1], -0.02, 0.02)
    iris_r = np.hypot(ax - EYE[0], y - EYE[1])
    brow_line = BROW_Y + 0.035 - 0.55 * np.clip(ax - 0.33, 0, None) ** 1.5 - 0.35 * np.clip(0.26 - ax, 0, None) ** 1.5
    return [
        (0.30 * pair(x, y, 0.42, -0.10, 0.15, 0.13), (205, 120, 105)),
        (0.25 * pair(x, y, EYE[0], EYE[1] - 0.02, 0.15, 0.08), (150, 105, 90)),
        (0.75 * pair(x, y, 0.060, -0.165, 0.030, 0.016), (70, 35, 30)),
        (0.85 * lip_mask(x, y), (168, 76, 74)),
        (0.80 * np.exp(-0.5 * ((y - MOUTH_Y) / 0.012) ** 2) * (1 - step(ax, 0.19, 0.26)), (80, 30, 32)),
        (opening, (232, 226, 222)),
        (opening * (1 - step(iris_r, 0.046, 0.060)), (84, 58, 40)),
        (opening * (1 - step(iris_r, 0.018, 0.030)), (16, 12, 12)),
        (0.75 * lash, (50, 32, 28)),
        (
            0.82 * np.exp(-0.5 * ((y - brow_line) / 0.030) ** 2) * step(ax, 0.08, 0.14) * (1 - step(ax, 0.42, 0.52)),
            (70, 46, 34),
        ),
    ]


def lip_mask(x: Array, y: Array) -> Array:
    """Where the lips are red, 0..1."""
    half = np.clip(1 - (x / (MOUTH_HALF + 0.02)) ** 2, 0, None)
    bow = 0.015 * np.exp(-0.5 * (x / 0.03) ** 2)
    top = MOUTH_Y + 0.085 * np.sqrt(half) - bow
    bottom = MOUTH_Y - 0.105 * half**0.6
    return step(top - y, -0.012, 0.012) * step(y - bottom, -0.012, 0.012) * step(half, 0.0, 0.08)


def landmark_targets() -> Array:
    """(68, 2) face-plane positions in the usual order, left of the picture first.

    Jaw 17, brows 10, nose 9, eyes 12, mouth 20.
    """
    jaw = [(-0.72 * np.cos(t) * (1 - 0.12 * np.sin(t)), 0.22 - 1.12 * np.sin(t)) for t in np.linspace(0.0, np.pi, 17)]
    brow = [(x, BROW_Y + 0.03 - 0.5 * max(abs(x) - 0.33, 0) ** 1.5) for x in np.linspace(-0.48, -0.12, 5)]
    bridge = [(0.0, y) for y in np.linspace(0.27, NOSE_TIP_Y, 4)]
    under = [(x, -0.165 + 0.02 * abs(x) / 0.13) for x in np.linspace(-0.13, 0.13, 5)]
    eye = [(0.125, 0.0), (0.05, 0.042), (-0.05, 0.042), (-0.125, 0.0), (-0.05, -0.042), (0.05, -0.042)]
    left_eye = [(-EYE[0] - dx, EYE[1] + dy) for dx, dy in eye]
    outer_x = [-1.0, -0.6, -0.22, 0.0, 0.22, 0.6, 1.0, 0.62, 0.25, 0.0, -0.25, -0.62]
    outer_y = [0.0, 0.05, 0.08, 0.07, 0.08, 0.05, 0.0, -0.07, -0.10, -0.105, -0.10, -0.07]
    inner_x = [-0.85, -0.25, 0.0, 0.25, 0.85, 0.25, 0.0, -0.25]
    inner_y = [0.0, 0.014, 0.014, 0.014, 0.0, -0.014, -0.014, -0.014]
    mouth = [(MOUTH_HALF * u, MOUTH_Y + v) for u, v in zip(outer_x + inner_x, outer_y + inner_y, strict=True)]
    mirrored_brow = [(-x, y) for x, y in reversed(brow)]
    right_eye = [(-left_eye[i][0], left_eye[i][1]) for i in (3, 2, 1, 0, 5, 4)]
    return np.array(jaw + brow + mirrored_brow + bridge + under + left_eye + right_eye + mouth)


def keypoints(shape: Array) -> NDArray[np.int64]:
    """(68,) vertices nearest to the landmarks' places in the face plane."""
    distance = ((landmark_targets()[:, None, :] - shape[None, :, :2]) ** 2).sum(-1)
    return np.asarray(distance.argmin(1), dtype=np.int64)


def smooth_field(rng: np.random.Generator, shape: Array, frequency: float, waves: int = 6) -> Array:
    """A mirror-symmetric smooth random function of the position: (V, 3) -> (V,)."""
    position = np.stack([np.abs(shape[:, 0]), shape[:, 1], shape[:, 2]], 1)
    direction = rng.normal(size=(waves, 3)) * frequency
    direction[:, 0] *= 0.8
    phase = rng.uniform(0, 2 * np.pi, waves)
    return np.cos(position @ direction.T + phase) @ rng.normal(size=waves)


def identity_candidates(shape: Array) -> list[Array]:
    """Named changes of form, (V, 3) each.

    Width, height, jaw, nose length, nose width, eyes apart, mouth, chin, cheeks, brow.
    """
    x, y, _ = shape.T
    zero = np.zeros_like(x)
    side = np.sign(x)
    return [
        np.stack([side * step(np.abs(x), 0.25, 0.70), zero, zero], 1),
        np.stack([zero, step(y, 0.45, 0.95) - step(y, -0.50, -1.0), zero], 1),
        np.stack([x * step(y, -0.25, -0.75), zero, zero], 1),
        np.stack([zero, -0.8 * nose(x, y), nose(x, y)], 1),
        np.stack([x * nose(x, y) * 4, zero, 0.3 * side * x * nose(x, y)], 1),
        np.stack([side * pair(x, y, EYE[0], EYE[1], 0.17, 0.16), zero, zero], 1),
        np.stack([x * bump(x, y, 0, MOUTH_Y, 0.3, 0.12) * 3, zero, 0.4 * lips(x, y)], 1),
        np.stack([zero, -0.9 * bump(x, y, 0, -0.85, 0.25, 0.18), bump(x, y, 0, -0.80, 0.22, 0.16)], 1),
        np.stack([0.4 * side * pair(x, y, 0.42, -0.05, 0.2, 0.2), zero, pair(x, y, 0.42, -0.05, 0.2, 0.2)], 1),
        np.stack([zero, 0.4 * step(y, 0.35, 0.8), pair(x, y, 0.25, 0.45, 0.25, 0.08)], 1),
    ]


def expression_candidates(shape: Array) -> list[Array]:
    """Named movements, (V, 3) each: jaw, smile, pout, brows up, frown, cheeks, lip press, nose, both mouth corners."""
    x, y, _ = shape.T
    zero = np.zeros_like(x)
    side = np.sign(x)
    below = step(y, MOUTH_Y + 0.01, MOUTH_Y - 0.03) * (1 - step(np.abs(x), 0.35, 0.65))
    corner = pair(x, y, MOUTH_HALF, MOUTH_Y, 0.10, 0.09)
    left, right = bump(x, y, -MOUTH_HALF, MOUTH_Y, 0.1, 0.1), bump(x, y, MOUTH_HALF, MOUTH_Y, 0.1, 0.1)
    brow = pair(x, y, 0.30, BROW_Y, 0.20, 0.10)
    return [
        np.stack([zero, -below, -0.25 * below], 1),
        np.stack([0.8 * side * corner, corner, -0.3 * corner], 1),
        np.stack([-x * bump(x, y, 0, MOUTH_Y, 0.25, 0.12) * 3, zero, bump(x, y, 0, MOUTH_Y, 0.16, 0.10)], 1),
        np.stack([zero, brow, zero], 1),
        np.stack([-side * pair(x, y, 0.16, BROW_Y, 0.10, 0.10), -0.6 * pair(x, y, 0.16, BROW_Y, 0.1, 0.1), zero], 1),
        np.stack([zero, 0.7 * pair(x, y, 0.38, 0.08, 0.16, 0.12), pair(x, y, 0.40, 0.02, 0.15, 0.14)], 1),
        np.stack([zero, 0.5 * np.sign(MOUTH_Y - y) * lips(x, y), -lips(x, y)], 1),
        np.stack([zero, bump(x, y, 0, -0.1, 0.14, 0.10), 0.5 * pair(x, y, 0.13, -0.11, 0.06, 0.06)], 1),
        np.stack([-left, 0.8 * left, zero], 1),
        np.stack([right, 0.8 * right, zero], 1),
    ]


def texture_candidates(x: Array, y: Array) -> list[Array]:
    """Named changes of colour, (V, 3) each: tone, warmth, lips, brows, eyes, cheeks, beard, forehead, lids, sides."""
    layers = albedo_layers(x, y)
    skin = 1 - layers[5][0]  # the whites of the eyes stay white: they tell light from tone
    lip, iris, brow = layers[3][0], layers[6][0], layers[9][0]
    beard = step(y, -0.2, -0.5) * (1 - lip_mask(x, y))
    return [
        skin[:, None] * [1.0, 1.0, 1.0],
        skin[:, None] * [0.6, -0.1, -0.8],
        lip[:, None] * [0.9, -0.6, -0.4],
        brow[:, None] * [1.0, 0.9, 0.8],
        iris[:, None] * [-0.4, 0.6, 1.2],
        pair(x, y, 0.42, -0.1, 0.17, 0.15)[:, None] * [0.5, -0.8, -0.7],
        beard[:, None] * [-1.0, -0.9, -0.8],
        step(y, 0.45, 0.8)[:, None] * [0.8, 0.8, 0.7],
        pair(x, y, EYE[0], EYE[1] + 0.08, 0.17, 0.07)[:, None] * [-0.6, -0.7, 0.3],
        (skin * step(np.abs(x), 0.30, 0.62))[:, None] * [-0.8, -0.6, -0.3],
    ]


def orthogonal(candidates: list[Array], against: Array | None = None) -> Array:
    """Unit columns (3V, K) that span the candidates in their order, and nothing of `against` (3V, M)."""
    matrix = np.stack([c.reshape(-1) for c in candidates], 1)
    matrix = matrix / np.linalg.norm(matrix, axis=0)
    if against is not None:
        matrix = np.concatenate([against, matrix], 1)
    q, r = np.linalg.qr(matrix)
    q = q * np.sign(np.diag(r))
    return q if against is None else q[:, against.shape[1] :]


def rigid_motions(shape: Array) -> Array:
    """Unit columns (3V, 7) of translation, rotation and scaling: what pose and distance do, and no basis may."""
    axes = np.eye(3)
    moves = [np.broadcast_to(axis, shape.shape) for axis in axes]
    turns = [np.cross(axis, shape) for axis in axes]
    return orthogonal([*moves, *turns, shape])


def scaled(columns: Array, peak: float) -> Array:
    """Columns scaled by the largest change of a vertex that a coefficient of 1 makes.

    `peak` for the first, slowly less for the named ones, a third of that and falling for the random rest.
    """
    rank = np.arange(columns.shape[1])
    size = np.where(rank < NAMED, (1.0 + rank) ** -0.3, 0.3 * (1.0 + np.clip(rank - NAMED, 0, None)) ** -0.5)
    largest = np.linalg.norm(columns.reshape(-1, 3, columns.shape[1]), axis=1).max(axis=0)
    result: Array = columns * (peak * size / largest)
    return result


def procedural_arrays(vertices: int, boundary: int, seed: int = 0) -> MorphableArrays:
    """The whole model: F = 2 * vertices - 2 - boundary triangles.

    A unit of a leading component moves the most affected vertex by 3 to 7 mm, or changes its colour by 14 to 30 of 255.
    """
    rng = np.random.default_rng(seed)
    points = disc(vertices, boundary)
    triangles, fans = triangulate(points)
    shape = base_shape(points)
    x, y = shape[:, 0], shape[:, 1]

    def fields(named: list[Array], count: int, frequency: float, mask: Array | None = None) -> list[Array]:
        random = []
        for k in range(count - len(named)):
            rate = frequency * (1 + k / count)
            field = np.stack([smooth_field(rng, shape, rate) for _ in range(3)], 1)
            field[:, 0] *= np.tanh(x / 0.1)  # mirrored faces stay mirrored
            random.append(field if mask is None else field * mask[:, None])
        return named + random

    moving = np.clip(bump(x, y, 0, -0.5, 0.45, 0.35) + pair(x, y, 0.3, 0.4, 0.25, 0.15), 0, 1)
    rigid = rigid_motions(shape)
    identity = orthogonal(fields(identity_candidates(shape), 80, 3.0), rigid)
    form = np.concatenate([rigid, identity], 1)
    expression = orthogonal(fields(expression_candidates(shape), 64, 4.0, moving), form)
    texture = orthogonal(fields(texture_candidates(x, y), 80, 3.0))
    return MorphableArrays(
        mean_shape=shape.reshape(-1).astype(np.float32),
        identity_basis=scaled(identity, 0.07).astype(np.float32),
        expression_basis=scaled(expression, 0.06).astype(np.float32),
        mean_texture=albedo(x, y).reshape(-1).astype(np.float32),
        texture_basis=scaled(texture, 40.0).astype(np.float32),
        triangles=triangles,
        vertex_triangles=fans,
        keypoints=keypoints(shape),
    )
