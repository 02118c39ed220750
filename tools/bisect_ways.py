"""Two ways to rank int8 nodes, and how much each removes: the table of docs/accuracy.md.

    python tools/bisect_ways.py engines/face3d_resnet50.onnx TYPED.onnx PICTURES/

"alone": the node alone in int8, the rest in float32 or fp16. "restored": all in int8 but the node. Rows are the largest
relative error of a coefficient group with the first nodes of either ranking kept higher.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx

from face3d_trt.bisect.pair import run
from face3d_trt.faces.collect import collect_faces
from face3d_trt.faces.samples import sample_crops
from face3d_trt.faces.tensor import to_input
from face3d_trt.graph.keep import keep_higher, lowered
from face3d_trt.names import GROUPS, INPUT
from face3d_trt.parity.rounding import round_explicitly

KEPT = (0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32)
MORE = 8  # pictures beside the package's samples


def main() -> None:
    """Rank both ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("onnx", "typed", "pictures"):
        parser.add_argument(name, type=Path)
    chosen = parser.parse_args()
    exact, typed = onnx.load(chosen.onnx), onnx.load(chosen.typed)
    crops = np.concatenate([sample_crops(), collect_faces(chosen.pictures, None, limit=MORE).crops])
    feed = {INPUT: to_input(crops, "float32")}
    right = run(exact, feed, exact=True)[0]
    spread = right - right.mean(0)

    def error(kept: Collection[str]) -> float:
        found = run(round_explicitly(keep_higher(typed, exact, kept)), feed)[0]
        groups = GROUPS.values()
        return max(float(np.linalg.norm((found - right)[:, g]) / np.linalg.norm(spread[:, g])) for g in groups)

    names = list(lowered(typed, exact, "int8"))
    ways = {
        "alone": lambda name: -error([other for other in names if other != name]),
        "restored": lambda name: error([name]),
    }
    orders = {}
    for way, cost in ways.items():
        begun = time.monotonic()
        orders[way] = sorted(names, key=cost)
        print(f"{way}: {time.monotonic() - begun:.0f} s")
    print("| kept higher |", " | ".join(map(str, KEPT)), "|")
    print("|---" * (len(KEPT) + 1) + "|")
    for way, order in orders.items():
        print(f"| {way} |", " | ".join(f"{error(order[:count]):.1%}" for count in KEPT), "|")


if __name__ == "__main__":
    main()
