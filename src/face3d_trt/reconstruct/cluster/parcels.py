"""What travels from stage to stage: a picture and what has become of it, as one row of an Arrow table."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from face3d_trt.optional import require

if TYPE_CHECKING:
    from face3d_trt.errors import Face3DError
    from face3d_trt.faces.images import Pixels
    from face3d_trt.reconstruct.engines import EngineSetup
    from face3d_trt.reconstruct.finish import Prepared
    from face3d_trt.reconstruct.messages import Setup
    from face3d_trt.reconstruct.results import Failure
    from face3d_trt.reconstruct.sources import Item

_COLUMN = "parcel"
_NO_COEFFS = np.empty((0, 257), np.float32)


@dataclass(frozen=True)
class Job:
    """What a process has to know before its first parcel.

    Attributes:
        run: Tells one run from another, in processes that serve several.
        setup: As for the workers of one machine; paths are absolute.
        engine: What an engine's process opens.
        batch: The least and the most rows that the engine is given.
        engines: How many there are.
    """

    run: str
    setup: Setup
    engine: EngineSetup
    batch: tuple[int, int]
    engines: int


@dataclass
class Parcel:
    """A picture on its way.

    Attributes:
        item: The picture; a whole video until its frames are there.
        skip: Of a video: numbers of the frames that are done.
        outcome: What became of it so far.
        crops: (N, height, width, 3) uint8 RGB, for the engine.
        photo: Of a frame, since only pictures can be read again.
        is_crop: Whether the photo is the crop.
        coeffs: (N, 257).
        seconds: By stage.
        line: Its line in the list of results.
        stop: Why the run cannot go on.
        node: Ray's name of the machine that finished it.
    """

    item: Item
    skip: frozenset[int] = frozenset()
    outcome: Prepared | Failure | None = None
    crops: Pixels | None = None
    photo: Pixels | None = None
    is_crop: bool = False
    coeffs: npt.NDArray[np.float32] = field(default_factory=lambda: _NO_COEFFS)
    seconds: dict[str, float] = field(default_factory=dict)
    line: bytes = b""
    stop: Face3DError | None = None
    node: str = ""


def pack(parcels: Iterable[Parcel]) -> Any:
    """A pyarrow.Table with a row for each."""
    arrow = require("pyarrow", "ray", "--ray")
    rows = [pickle.dumps(parcel, protocol=pickle.HIGHEST_PROTOCOL) for parcel in parcels]
    return arrow.table({_COLUMN: arrow.array(rows, arrow.large_binary())})


def unpack(table: Any) -> Iterator[Parcel]:
    """The rows of a pyarrow.Table."""
    for row in table.column(_COLUMN):
        yield pickle.loads(row.as_buffer())
