"""Pictures to choose by, and others to judge by, which took no part in the choice."""

from __future__ import annotations

from dataclasses import replace

from face3d_trt.parity.pictures import ENOUGH, Chosen
from face3d_trt.parity.truth import Pictures


def parted(pictures: Chosen) -> tuple[Chosen, Chosen]:
    """Pictures to choose by, and pictures to judge by.

    Of enough pictures of the user's every second one chooses and the others judge. Fewer are too few for both, as are
    the package's samples: those judge, and sixteen renders that the package has beside them choose.

    Args:
        pictures: Of `choose_pictures`.
    """
    different = list({crop.tobytes(): at for at, crop in enumerate(pictures.pictures.crops)}.values())
    if not pictures.samples and len(different) >= 2 * ENOUGH:
        return _part(pictures, different[::2], "first"), _part(pictures, different[1::2], "second")
    from face3d_trt.faces.samples import choice_crops

    crops = choice_crops()
    names = tuple(f"render {at + 1}" for at in range(len(crops)))
    choice = Pictures(crops, names, pictures.pictures.layout)
    return Chosen(choice, "the package's renders for choosing", None, (), ()), pictures


def _part(pictures: Chosen, rows: list[int], start: str) -> Chosen:
    every = pictures.pictures
    part = Pictures(every.crops[rows], tuple(every.names[row] for row in rows), every.layout)
    return replace(pictures, pictures=part, origin=f"every second of {pictures.origin}, from the {start} on")
