"""float32 → mixed fp16 by ModelOpt's AutoCast, which keeps in float32 what would leave fp16's range."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from face3d_trt.graph.modelopt import modelopt_room
from face3d_trt.records import KeptNode

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

RANGE_FACES = 4  # AutoCast holds every activation of every face at once: about 100 MB each at full width
_KEPT = re.compile(r"Skipping node (?P<node>\S+): (?P<reason>.+)")


@dataclass(frozen=True)
class Typed:
    """A network after a precision pass, and the nodes that stayed above the precision asked for.

    Args:
        network: With its types.
        kept: Nodes that stayed higher.
        note: What the pass did, in one line; empty when its name says it.
    """

    network: ModelProto
    kept: tuple[KeptNode, ...]
    note: str = ""


def to_fp16(network: ModelProto, image: str, faces: np.ndarray) -> Typed:
    """Convert the network part to fp16; its input and output stay float32.

    Args:
        network: float32.
        image: Name of its input.
        faces: (N, 3, height, width) float32 RGB 0..1: real aligned faces, whose activations say which nodes stay in
            float32. Random noise would keep the wrong ones.

    Raises:
        MissingError: ModelOpt is not installed.
        BuildError: AutoCast failed.
    """
    import numpy as np
    import onnx

    with modelopt_room("AutoCast") as room:
        from modelopt.onnx.autocast import convert_to_mixed_precision

        source, batch = room.folder / "network.onnx", room.folder / "faces.npz"
        onnx.save(network, source)
        arrays: dict[str, Any] = {image: faces}
        np.savez(batch, **arrays)
        converted = convert_to_mixed_precision(
            str(source),
            "fp16",
            keep_io_types=True,
            calibration_data=str(batch),
            providers=["cpu"],  # fresh lists: the defaults are shared between calls, and changed
            trt_plugins=[],
            trt_plugins_precision=[],
        )
        kept = tuple(
            KeptNode(node=match["node"], reason=match["reason"])
            for match in map(_KEPT.fullmatch, room.lines)
            if match is not None
        )
    return Typed(converted, kept)
