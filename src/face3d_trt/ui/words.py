"""A result in words and rows, for people."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.names import GROUPS, MM_PER_UNIT

if TYPE_CHECKING:
    import numpy.typing as npt

    from face3d_trt.errors import Face3DError
    from face3d_trt.ui.work import Result

COLUMNS = ("group", "n", "RMS", "least", "most", "meaning")
_MEANING = {
    "identity": "shape of the head; all 0: the mean face",
    "expression": "all 0: at rest",
    "texture": "colour of the skin; all 0: the mean",
    "lighting": "9 spherical harmonics for each of R, G, B",
}
_WEIGHTS = {
    "learned": "This model is the stand-in, which has learned from renders of formulas: of a photo it reads pose and "
    "expression, but neither whose face it is nor its colours. The texture is the photo's own.",
    "seeded": "This model has random weights: the mesh means nothing. The texture is the photo's own.",
    "checkpoint": "",
}


def rows(coeffs: npt.NDArray[np.float32]) -> list[list[str | int]]:
    """A row for each group of (257,) coefficients, as COLUMNS says."""
    found: list[list[str | int]] = []
    for name, part in GROUPS.items():
        values = coeffs[part].astype(np.float64)
        figures = (np.sqrt(np.mean(values**2)), values.min(), values.max())
        found.append([name, len(values), *(f"{figure:.2f}" for figure in figures), _meaning(name, values)])
    return found


def shares(seconds: dict[str, float]) -> dict[str, float]:
    """The share of each stage in the whole time, by its name and its milliseconds."""
    whole = sum(seconds.values())
    return {f"{name}: {1000 * each:.1f} ms": each / whole for name, each in seconds.items()}


def summary(result: Result, backend: str) -> str:
    """What was done, as Markdown."""
    width, height = result.size
    if not result.searched:
        faces = "An aligned face"
    else:
        faces = "One face" if result.faces == 1 else f"The largest of {result.faces} faces"
    return (
        f"{faces} in {width}x{height} px, reconstructed in {1000 * sum(result.seconds.values()):.0f} ms. "
        f"Network: {escaped(backend)}."
    )


def refusal(error: Face3DError) -> str:
    """Why there is no result, as Markdown."""
    text = f"**No result:** {escaped(error.problem)}."
    return f"{text} What works: {escaped(error.allowed)}." if error.allowed else text


def about_weights(weights: str) -> str:
    """What to expect of a model; empty for one that was trained."""
    return _WEIGHTS[weights]


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    plain = html.escape(text.replace("\n", " "))
    return "".join(f"\\{each}" if each in "\\`*_{}[]()#+-!|~$" else each for each in plain)


def _meaning(name: str, values: npt.NDArray[np.float64]) -> str:
    if name == "angle":
        return ", ".join(f"{axis} {degrees:.1f}°" for axis, degrees in zip(_AXES, np.degrees(values), strict=True))
    if name == "translation":
        return ", ".join(f"{axis} {mm:.1f} mm" for axis, mm in zip("xyz", values * MM_PER_UNIT, strict=True))
    return _MEANING[name]


_AXES = ("pitch", "yaw", "roll")
